"""The parser of commands, and arguments that several share: an experiment, and the token."""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from main.cli.output import HelpShown
from session.config.sections import MAPPINGS
from session.errors import UsageError, did_you_mean
from session.process.component import TOKEN
from surreal_like.run.request import RunRequest

# Variable of the environment that has a token.


_SHOWN_LETTERS = 40


class Parser(argparse.ArgumentParser):
    """The options of one command.

    Args:
        command: the name.
        description: the purpose.
        epilog: examples, shown as written.
    """

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"surreal-like {command}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Returns the arguments; options may stand before, between and after the words."""
        return self.parse_intermixed_args(args, namespace)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raises HelpShown, which is told from an exit of a user's code."""
        raise HelpShown(status)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError, with the option that was probably meant in place of an unknown one."""
        lead, begin, rest = message.partition("unrecognized arguments: ")
        hint, unknown = "", rest.split()
        if unknown and unknown[0].startswith("--"):
            options = [each for action in self._actions for each in action.option_strings]
            hint = did_you_mean(unknown[0].partition("=")[0], options, lead="; ")
        shown = lead + begin + " ".join(map(_shorten, unknown))
        raise UsageError(f"{shown}{hint}; see {self.prog} --help")


def _shorten(word: str) -> str:
    """Returns a word, of a long one its begin only: it may be a token."""
    return word if len(word) <= _SHOWN_LETTERS else f"{word[:12]}..."


_OTHERS = stat.S_IRGRP | stat.S_IROTH
# Options of the commands that are fields of a request.
_OPTIONS = (
    *("algorithm", "env", "seed", "agents", "evals", "host", "insecure", "snapshot"),
    *("folder", "resume", "allow_change", "checkpoint", "start_from"),
)


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name an experiment."""
    group = parser.add_argument_group("the experiment")
    group.add_argument(
        "words",
        nargs="*",
        metavar="CONFIG.yaml section.key=value",
        help="an experiment file, or the name of a shipped one (see list experiments), then "
        "settings that replace the file's (values are YAML)",
    )
    group.add_argument(
        "--algorithm",
        metavar="NAME",
        help="name, package.module:Class or .py file (see list algorithms)",
    )
    group.add_argument(
        "--env", metavar="NAME", help="environment, such as gym:CartPole-v1 (see list environments)"
    )
    group.add_argument(
        "--seed", type=int, metavar="S", help="seed of the run (overrides the config)"
    )
    group.add_argument(
        "--agents", type=int, metavar="N", help="number of processes that step environments"
    )
    group.add_argument("--evals", type=int, metavar="N", help="number of processes that evaluate")


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the run folder and for resuming."""
    parser.add_argument("--folder", help="run folder; default: runs/<name>-<date>-<time>")
    parser.add_argument(
        "--no-snapshot",
        dest="snapshot",
        action="store_const",
        const=False,
        help="keep no archive of the code in the run folder",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in the folder, or that of a mirror: --resume URL",
    )
    add_allow_change(parser, "key outside session_config")
    parser.add_argument(
        "--checkpoint",
        metavar="best|latest|STEP",
        help="with --resume: checkpoint to go on from; newer ones are set aside",
    )
    parser.add_argument(
        "--from",
        dest="start_from",
        metavar="RUN[:best|latest|STEP]",
        help="begin a new run with the networks of another run's checkpoint",
    )


def add_allow_change(parser: argparse.ArgumentParser, key: str) -> None:
    """Adds the argument for changes of a resumed run; ``key`` says which key it names."""
    parser.add_argument(
        "--allow-change",
        action="extend",
        type=lambda keys: keys.split(","),
        default=[],
        metavar="KEY",
        help=f"with --resume: {key} that may differ; a,b for several",
    )


def add_token(parser: argparse.ArgumentParser, made_by: str) -> None:
    """Adds the arguments for a token; ``made_by`` is the command that prints it."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--token",
        help=f"made by {made_by}; other users of this machine can see it in the list of "
        "processes, so rather:",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file that has the token; without both options it is the variable {TOKEN}",
    )


def token_of(given: argparse.Namespace) -> str:
    """Returns the token of a parsed command line, of its file or of the environment; else "".

    Raises:
        UsageError: the file cannot be read, others can read it, or it is empty.
    """
    if given.token_file is None:
        return given.token if given.token is not None else os.environ.get(TOKEN, "")
    path = Path(given.token_file).expanduser()
    try:
        if os.path.isfile(path) and path.stat().st_mode & _OTHERS:
            raise UsageError(f"--token-file {path}: others can read it: chmod 600 {path}")
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"--token-file {path}: {reason}") from None
    if not token:
        raise UsageError(f"--token-file {path} is empty, expected a token")
    return token


_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str, option: str) -> float:
    """Returns the seconds of ``30s``, ``5m``, ``2h`` or ``1d``.

    Args:
        text: the text.
        option: option that it belongs to, for the error.

    Raises:
        UsageError: the text has another form, or is 0.
    """
    found = _TIME.fullmatch(text)
    if found is None or not float(found[1]):
        raise UsageError(f"{option}: '{text}' is no time: write it as 30s, 5m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def request_of(given: argparse.Namespace) -> RunRequest:
    """Returns the request of a parsed command line.

    Raises:
        UsageError: the words are not a file and settings, they name no experiment, or options
            exclude each other.
    """
    for word in given.words:
        if "=" not in word and word.partition(".")[0] in MAPPINGS:
            raise UsageError(f"{word} has no value: write {word}=VALUE")
    files = [word for word in given.words if _is_file(word)]
    if len(files) > 1:
        raise UsageError(f"one experiment at a time: {' and '.join(files)} are given")
    chosen = {name: value for name in _OPTIONS if (value := getattr(given, name, None)) is not None}
    allowed, resumes = chosen.pop("allow_change", []), chosen.get("resume", False)
    if not files and given.algorithm is None and not resumes:
        raise UsageError(
            "no experiment: give a file, a name such as cartpole_dqn, or --algorithm and --env"
        )
    if allowed and not resumes:
        raise UsageError("--allow-change belongs to --resume: a new run may differ in everything")
    return RunRequest(
        files[0] if files else None,
        given.on,
        [word for word in given.words if not _is_file(word)],
        allow_change=allowed,
        **chosen,
    )


def _is_file(word: str) -> bool:
    return "=" not in word or os.path.isfile(word)
