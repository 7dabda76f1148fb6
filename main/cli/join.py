"""``surreal-like join ADDRESS:PORT --token TOKEN``: runs agents for a run on another machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from main.cli.arguments import Parser, add_token, token_of
from main.cli.runs import find_run
from session.errors import UsageError
from surreal_like.join.agents import further_line, join
from surreal_like.join.client import Invitation

_EXAMPLES = """examples:
  surreal-like launch configs/cartpole_dqn.yaml --on local --host 192.0.2.7   prints the line
  surreal-like join 192.0.2.7:41233 --token sl1-... --agents 4                on another machine
  surreal-like join 192.0.2.7:41233 --token-file token.txt                    hidden from others
  surreal-like join --print latest                                            a further token

exit code: 0 the run is over, or SIGTERM has asked to leave; 1 the agents or the run were lost;
2 not let in, or a wrong command; 130 interrupted (Ctrl-C leaves cleanly, a second one at once)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    if given.print is not None:
        print(further_line(find_run(given.print).path))
        return 0
    token = token_of(given)
    if given.address is None or not token:
        missing = "ADDRESS:PORT" if given.address is None else "--token TOKEN"
        raise UsageError(
            f"{missing} is missing: copy the line that launch --host has printed, or get another "
            "on the run's machine with: surreal-like join --print RUN"
        )
    if given.agents < 1:
        raise UsageError(f"--agents is {given.agents}, expected 1 or more")
    invitation = Invitation(
        given.address,
        token,
        given.agents,
        Path(given.algorithm).expanduser() if given.algorithm else None,
        Path(given.folder) if given.folder else None,
    )
    return join(invitation, report=lambda line: print(line, flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = Parser("join", "Runs agents here for a run on another machine.", _EXAMPLES)
    parser.add_argument(
        "address", nargs="?", metavar="ADDRESS:PORT", help="address that launch --host has printed"
    )
    add_token(parser, "launch --host or join --print, for one machine")
    parser.add_argument(
        "--agents", type=int, default=1, metavar="N", help="number of agents; default: 1"
    )
    parser.add_argument(
        "--algorithm", metavar="FILE", help="the run's own algorithm file, if it has one"
    )
    parser.add_argument(
        "--folder", help="folder for the files written here; default: a temporary one"
    )
    parser.add_argument(
        "--print",
        metavar="RUN",
        help="print a join line with a new token for a run of this machine, and exit",
    )
    return parser
