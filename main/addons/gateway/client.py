"""``surreal-like client HOST:PORT --env NAME``: an environment as a client of a gateway.

``surreal-like client --copy LANGUAGE [FOLDER]`` copies a client for programs of one's own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from main.cli.arguments import Option, Parser, token_of, token_options
from session.errors import UsageError
from session.process.component import TOKEN

_EXAMPLES = """examples:
  surreal-like client 127.0.0.1:7100 --env gym:CartPole-v1 --num 4
  surreal-like client 127.0.0.1:7100 --env gym:Pendulum-v1 --episodes 10 --render
  surreal-like client tls://10.0.0.5:7100 --env gym:CartPole-v1 --token-file token.txt
  surreal-like client --copy javascript web

exit code: 0 the run is over, or all episodes are played; 1 the gateway was lost; 2 not let in, or a
wrong command; 130 interrupted (Ctrl-C says goodbye)
"""

# The client itself first, then its example.
_FILES = {
    "python": ("surreal_client.py",),
    "javascript": ("surreal_client.js", "cartpole.js"),
    "cpp": ("surreal_client.hpp", "cartpole.hpp", "cartpole.cpp"),
}


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.copy is not None:
        return _copy(*given.copy)
    missing = [name for name in ("address", "env") if getattr(given, name) is None]
    if missing:
        shown = {"address": "HOST:PORT", "env": "--env"}
        parser.error(
            f"the following arguments are required: {', '.join(shown[name] for name in missing)}"
        )
    for name, least in (("num", 1), ("episodes", 0)):
        if getattr(given, name) < least:
            raise UsageError(f"--{name} is {getattr(given, name)}, expected {least} or more")

    token = token_of(given)
    from surreal_like.addons.gateway.driving import drive, drive_in_processes  # imports gymnasium

    if given.num > 1:
        words = [given.address, "--env", given.env, "--episodes", str(given.episodes)]
        for name in ("mode", "name", "fingerprint"):
            words += [f"--{name}", getattr(given, name)]
        words += ["--render"] * given.render
        return drive_in_processes(given.num, words, {TOKEN: token})
    played = drive(
        given.address,
        given.env,
        episodes=given.episodes,
        mode=given.mode,
        name=given.name,
        token=token,
        fingerprint=given.fingerprint,
        render=given.render,
        say=(lambda line: print(line, flush=True)) if given.episodes else (lambda line: None),
    )
    print(f"{played} episodes played")
    return 0


def _copy(language: str, folder: str = ".", *more: str) -> int:
    """Copies the files of a client into a folder; one that is there already is an error.

    Raises:
        UsageError: there is no such client, or a file is in the way.
    """
    from surreal_like.addons.gateway import clients

    if language not in _FILES or more:
        raise UsageError(
            f"--copy is {' '.join((language, folder, *more))!r}, expected one of "
            f"{', '.join(_FILES)}, then a folder"
        )
    source, target = Path(clients.__file__).parent, Path(folder)
    taken = [name for name in _FILES[language] if os.path.exists(target / name)]
    if taken:
        raise UsageError(f"{target / taken[0]} is there already: remove it, or name another folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in _FILES[language]:
            shutil.copyfile(source / name, target / name)
            print(target / name)
    except OSError as error:
        raise UsageError(f"cannot copy to {target}: {error.strerror}") from None
    return 0


def _parser() -> Parser:
    return Parser(
        "client",
        "Plays an environment for the gateway of a run.",
        Option(
            "address",
            metavar="HOST:PORT",
            nargs="?",
            help="where the gateway listens; tls://HOST:PORT where it has a certificate",
        ),
        Option(
            "--env",
            metavar="NAME",
            help="environment, such as gym:CartPole-v1 (see list environments)",
        ),
        Option("--num", type=int, default=1, metavar="N", help="number of processes; default: 1"),
        Option(
            "--episodes",
            type=int,
            default=0,
            metavar="N",
            help="episodes of each process; default: until the run is over",
        ),
        token_options("surreal-like clients RUN --token NAME"),
        Option(
            "--fingerprint",
            default="",
            help="SHA-256 of the certificate, where no authority signed it",
        ),
        Option("--render", action="store_true", help="shows the environment in a window"),
        Option("--mode", default="", help="train, evaluate or act; default: train"),
        Option("--name", default="", help="name of the session in the run's tables"),
        Option(
            "--copy",
            nargs="+",
            metavar=("LANGUAGE", "FOLDER"),
            help=f"copies a client into a folder, by default this one: {', '.join(_FILES)}",
        ),
        examples=_EXAMPLES,
    )
