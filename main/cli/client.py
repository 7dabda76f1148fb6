"""``surreal-like client HOST:PORT --env NAME``: an environment as a client of a gateway."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from main.cli.parser import Parser
from session.errors import UsageError

_EXAMPLES = """examples:
  surreal-like client 127.0.0.1:7100 --env gym:CartPole-v1 --num 4
  surreal-like client 127.0.0.1:7100 --env gym:Pendulum-v1 --episodes 10

exit code: 0 the run is over, or all episodes are played; 1 the gateway was lost; 2 not let in, or a
wrong command; 130 interrupted (Ctrl-C says goodbye)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    for name, least in (("num", 1), ("episodes", 0)):
        if getattr(given, name) < least:
            raise UsageError(f"--{name} is {getattr(given, name)}, expected {least} or more")

    from surreal_like.gateway.driving import drive, drive_in_processes  # imports gymnasium

    if given.num > 1:
        words = [given.address, "--env", given.env, "--episodes", str(given.episodes)]
        for name in ("mode", "name", "token"):
            words += [f"--{name}", getattr(given, name)]
        return drive_in_processes(given.num, words)
    played = drive(
        given.address,
        given.env,
        episodes=given.episodes,
        mode=given.mode,
        name=given.name,
        token=given.token,
        say=(lambda line: print(line, flush=True)) if given.episodes else (lambda line: None),
    )
    print(f"{played} episodes played")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("client", "Plays an environment for the gateway of a run.", _EXAMPLES)
    parser.add_argument("address", metavar="HOST:PORT", help="where the gateway listens")
    parser.add_argument(
        "--env",
        required=True,
        metavar="NAME",
        help="environment, such as gym:CartPole-v1 (see list environments)",
    )
    parser.add_argument(
        "--num", type=int, default=1, metavar="N", help="number of processes; default: 1"
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=0,
        metavar="N",
        help="episodes of each process; default: until the run is over",
    )
    parser.add_argument("--token", default="", help="made by surreal-like clients RUN --token NAME")
    parser.add_argument("--mode", default="", help="train, evaluate or act; default: train")
    parser.add_argument("--name", default="", help="name of the session in the run's tables")
    return parser
