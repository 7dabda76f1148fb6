"""``surreal-like clients RUN``: sessions of the clients of a run's gateways, and their keys."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from main.cli.arguments import RUN, Group, Option, Parser
from main.cli.runs import find_run
from session.addons.gateway.client_tokens import (
    DEFAULT_MODES,
    add_days,
    read_tokens,
    revoke_token,
    write_certificate,
    write_token,
)
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.json_file import COUNT, NUMBER, TEXT, VALUE, Nullable, read_object
from session.launchers.handle import open_run
from session.launchers.registry import launcher_of
from session.show.text import MISSING, columns, count, decimal

_EXAMPLES = """examples:
  surreal-like clients latest                                  lists sessions and tokens
  surreal-like clients latest --token robot --mode act         prints a new token, once
  surreal-like clients latest --revoke robot
  surreal-like clients latest --certificate 10.0.0.5           for session_config.gateway.tls

Tokens are asked for where session_config.gateway.tokens is true.
"""
_HEAD = (
    *("gateway", "session", "mode", "state", "address"),
    *("steps", "episodes", "return", "round trip ms", "idle s"),
)
_RIGHT = (5, 6, 7, 8, 9)
_MODES = ("train", "act", "evaluate")
_SESSIONS = {
    "sessions": [
        {
            **dict.fromkeys(("name", "mode", "state", "address"), TEXT),
            **dict.fromkeys(("steps", "episodes"), COUNT),
            **dict.fromkeys(("last_return", "round_trip_seconds"), Nullable(VALUE)),
            "idle_seconds": NUMBER,
        }
    ]
}


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "clients",
        "Lists the clients of a run, and makes and revokes their tokens.",
        RUN,
        Group(
            None,
            Option("--token", metavar="NAME", help="make a token and print it"),
            Option("--revoke", metavar="NAME", help="remove a token: its sessions end"),
            Option("--certificate", metavar="HOST", help="make a self-signed certificate"),
        ),
        Option(
            "--mode",
            action="append",
            default=[],
            choices=_MODES,
            help=f"with --token: this mode; may be repeated; default: {', '.join(DEFAULT_MODES)}",
        ),
        Option(
            "--days",
            type=float,
            default=0.0,
            help="with --token: valid so long; default: until revoked",
        ),
        examples=_EXAMPLES,
    ).parse_args(argv)
    run_folder = find_run(given.run)
    folder = run_folder.client_tokens
    if given.token is not None:
        if given.days < 0:
            raise UsageError(f"--days is {given.days:g}, expected 0 or more")
        until = add_days(time.time(), given.days)
        print(write_token(folder, given.token, modes=given.mode or DEFAULT_MODES, until=until))
        _share(run_folder)
    elif given.certificate is not None:
        print(_make_certificate(run_folder, given.certificate))
    elif given.revoke is not None:
        revoke_token(folder, given.revoke)
        _share(run_folder)
    else:
        print(_sessions(run_folder))
        tokens = read_tokens(folder, _warn)
        if tokens:
            rows = [
                [each.name, ", ".join(each.modes) or "all", _date(each.until)] for each in tokens
            ]
            print(columns(["token", "modes", "until"], rows))
    return 0


def _warn(text: str) -> None:
    """Reports a file that is left out; the others are listed."""
    sys.stderr.write(f"surreal-like: {text}; it is left out\n")


def _share(folder: RunFolder) -> None:
    """Sends the tokens of a run on a cluster to its gateways."""
    if launcher_of(folder.launcher).remote:
        open_run(folder).apply_secrets()


def _make_certificate(folder: RunFolder, host: str) -> str:
    """Makes a certificate for the gateways; returns what the user has to do with it."""
    certificate, key, fingerprint = write_certificate(folder.keys, host)
    return (
        f"{fingerprint}\n"
        "gateways use it with these settings, from their next start on:\n"
        f"  session_config.gateway.tls.cert={certificate.absolute()}\n"
        f"  session_config.gateway.tls.key={key.absolute()}\n"
        f"clients connect to tls://{host}:PORT with fingerprint={fingerprint}"
    )


def _sessions(folder: RunFolder) -> str:
    """Returns the table of all sessions, as the gateways have written it last."""
    rows = []
    for path in sorted(folder.gateways.glob("*.json")) if os.path.isdir(folder.gateways) else ():
        try:
            found = read_object(path, _SESSIONS)["sessions"]
        except ConfigError as error:
            _warn(str(error))
            continue
        rows += [[path.stem, *_cells(each)] for each in found]
    return columns(_HEAD, rows, right=_RIGHT) if rows else "no sessions"


def _cells(session: dict[str, Any]) -> list[str]:
    round_trip = session["round_trip_seconds"]
    return [
        session["name"],
        session["mode"],
        session["state"],
        session["address"] or MISSING,
        count(session["steps"]),
        count(session["episodes"]),
        decimal(session["last_return"]),
        MISSING if round_trip is None else decimal(1000.0 * round_trip),
        decimal(session["idle_seconds"]),
    ]


def _date(until: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(until)) if until else "never"
