"""``surreal-like join ADDRESS:PORT --token TOKEN``: works for a run or tuning elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from main.cli.arguments import Group, Option, Parser, seconds_of, token_of, token_options
from main.cli.runs import find_folder
from session.addons.engines.machines import (
    COMMAND,
    MachineSpec,
    keep_trying,
    list_engines,
    make_machines,
)
from session.errors import UsageError
from surreal_like.addons.join.admission_client import Invitation, default_folder, is_folder
from surreal_like.addons.join.agents import further_line, join
from surreal_like.addons.join.autoscaling import MACHINES, Bounds, keep_joined

_EXAMPLES = """examples:
  surreal-like launch configs/cartpole_dqn.yaml --on local --host 192.0.2.7   prints the line
  surreal-like join 192.0.2.7:41233 --token sl1-... --agents 4                on another machine
  surreal-like join 192.0.2.7:41233 --token-file token.txt                    hidden from others
  surreal-like join --print latest                                            a further token
  surreal-like join --print latest --uses 64 --valid 24h                      for 64 machines
  surreal-like join RUN --token-file token.txt --keep-trying                  a shared folder

exit code: 0 the run is over, or SIGTERM has asked to leave; 1 the agents or the run were lost;
2 not let in, or a wrong command; 75 the run was not there for the time of --give-up-after;
130 interrupted (Ctrl-C leaves cleanly, a second one at once)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    if given.print is not None:
        valid = seconds_of(given.valid, "--valid") if given.valid else None
        print(further_line(find_folder(given.print).path, given.uses, valid))
        return 0
    token = token_of(given)
    if given.address is None or not token:
        missing = "ADDRESS:PORT" if given.address is None else "--token TOKEN"
        raise UsageError(
            f"{missing} is missing: copy the line that launch --host has printed, or get another "
            "on the run's machine with: surreal-like join --print RUN"
        )
    if given.slots < 0:
        raise UsageError(f"--slots is {given.slots}, expected 0 or more")
    if given.agents < 1:
        raise UsageError(f"--agents is {given.agents}, expected 1 or more")
    invitation = Invitation(
        given.address,
        token,
        given.agents,
        Path(given.algorithm).expanduser() if given.algorithm else None,
        Path(given.folder) if given.folder else None,
    )
    report = partial(print, flush=True)
    if given.on is not None:
        return _keep_joined(given, invitation, report)
    patience = seconds_of(given.give_up_after, "--give-up-after")
    return join(
        invitation,
        report,
        keep_trying=given.keep_trying,
        give_up_seconds=patience,
        slots=given.slots,
    )


def _keep_joined(
    given: argparse.Namespace, invitation: Invitation, report: Callable[[str], object]
) -> int:
    """Keeps machines of an engine joined; returns the exit code."""
    folder = (invitation.folder or default_folder(invitation.token)).absolute()
    address = invitation.address
    if shared := is_folder(address):
        address = str(Path(address).absolute())
    command = [*COMMAND, "join", address, *keep_trying(), "--agents", str(given.agents)]
    command += ["--slots", str(given.slots)]
    if invitation.algorithm is not None:
        command += ["--algorithm", str(invitation.algorithm.absolute())]
    bounds = _bounds(given.machines)
    options = dict(_setting(word) for word in given.option)
    spec = MachineSpec(
        tuple(command), invitation.token, folder / MACHINES, given.cpu, given.gpu, options
    )
    machines = make_machines(given.on, spec)
    if shared and not machines.share_files:
        raise UsageError(
            f"machines of {given.on} do not have the folder {address}: give the HOST:PORT that "
            "launch --host has printed"
        )
    return keep_joined(invitation, machines, bounds, report, slots=max(1, given.slots))


def _bounds(text: str) -> Bounds:
    least, dots, most = text.partition("..")
    try:
        bounds = Bounds(int(least), int(most if dots else least))
    except ValueError:
        bounds = Bounds(0, 0)
    if not 1 <= bounds.least <= bounds.most:
        raise UsageError(f"--machines {text}: write it as 4, or as 2..16")
    return bounds


def _setting(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise UsageError(f"--option {word}: write it as NAME=VALUE")
    return name, value


def _parser() -> Parser:
    return Parser(
        "join",
        "Works here for a run (agents) or a tuning (trials) of another machine.",
        Option(
            "address",
            nargs="?",
            metavar="ADDRESS:PORT",
            help="address that launch --host has printed; or the folder of the run, if it is "
            "shared",
        ),
        token_options("launch --host or join --print, for one machine"),
        Option("--agents", type=int, default=1, metavar="N", help="number of agents; default: 1"),
        Option(
            "--slots",
            type=int,
            default=0,
            metavar="N",
            help="for a tuning: trials that work here at the same time; default: as many as fit",
        ),
        Option("--algorithm", metavar="FILE", help="the run's own algorithm file, if it has one"),
        Option("--folder", help="folder for the files written here; default: a temporary one"),
        Option(
            "--print",
            metavar="RUN",
            help="print a join line with a new token for a run of this machine, and exit",
        ),
        Option(
            "--uses",
            type=int,
            default=1,
            metavar="N",
            help="with --print: number of machines that the token admits; default: 1",
        ),
        Option(
            "--valid",
            metavar="24h",
            help="with --print: time in which it admits further ones, such as 30m, 24h or 7d; "
            "default: no limit",
        ),
        Option(
            "--keep-trying",
            action="store_true",
            help="wait for a run that does not answer yet, and go back to one that is resumed",
        ),
        Option(
            "--give-up-after",
            default="12h",
            metavar="TIME",
            help="with --keep-trying: longest time without the run, such as 30s, 5m or 12h; the "
            "default is 12h",
        ),
        _engine_options(),
        examples=_EXAMPLES,
    )


def _engine_options() -> Group:
    """Returns the options for machines of an engine."""
    return Group(
        "machines of an engine, instead of this one",
        Option(
            "--on",
            metavar="ENGINE",
            help=f"keep machines of it joined: {', '.join(list_engines())}",
        ),
        Option(
            "--machines",
            default="1",
            metavar="N|N..M",
            help="number of machines, or its bounds: it follows the advice of status; default: 1",
        ),
        Option("--cpu", type=float, default=1.0, metavar="C", help="cores of each; default: 1"),
        Option("--gpu", type=float, default=0.0, metavar="G", help="GPUs of each; default: 0"),
        Option(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="further setting of the engine; repeat it for several",
        ),
    )
