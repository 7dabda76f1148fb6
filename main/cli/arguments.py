"""The parser of commands, and the arguments that several have."""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from main.cli.output import HelpShown
from session.config.sections import MAPPINGS
from session.did_you_mean import did_you_mean
from session.errors import ConfigError, UsageError
from session.process.component import TOKEN
from surreal_like.run.request import RunRequest

_SHOWN_LETTERS = 40


class Option:
    """One argument of a command, as data.

    Args:
        names: the words that begin it; one without a hyphen names a word at its place.
        keywords: those of ``add_argument``.
    """

    def __init__(self, *names: str, **keywords: Any) -> None:
        self._names, self._keywords = names, keywords

    def add_to(self, place: argparse._ActionsContainer) -> None:
        """Adds the argument to a parser or a group."""
        place.add_argument(*self._names, **self._keywords)


class Group:
    """Arguments that belong together.

    Args:
        title: heading in the help text; None: at most one of them may be given.
        options: the arguments.
    """

    def __init__(self, title: str | None, *options: Option) -> None:
        self._title, self._options = title, options

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds the arguments to a parser."""
        if self._title is None:
            place: argparse._ActionsContainer = parser.add_mutually_exclusive_group()
        else:
            place = parser.add_argument_group(self._title)
        for each in self._options:
            each.add_to(place)


class Parser(argparse.ArgumentParser):
    """The arguments of one command.

    Args:
        command: the name.
        description: the purpose.
        options: the arguments, in the order of the help text.
        examples: text at the end of the help, shown as written.
    """

    def __init__(
        self, command: str, description: str, *options: Option | Group, examples: str = ""
    ) -> None:
        super().__init__(
            prog=f"surreal-like {command}",
            description=description,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for each in options:
            each.add_to(self)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Returns the arguments; options may stand before, between and after the words."""
        return self.parse_intermixed_args(args, namespace)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raises HelpShown, which no code of a user raises, in place of an exit."""
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


RUN = Option("run", metavar="RUN", help="folder, name below runs/, URL of a mirror, or latest")
# Words for `find_runs`.
SEVERAL_RUNS = Option(
    "runs",
    nargs="+",
    metavar="RUN",
    help="folder, name below runs/ or the beginning of several, a pattern, or latest",
)
EXPERIMENT = Group(
    "the experiment",
    Option(
        "words",
        nargs="*",
        metavar="CONFIG.yaml section.key=value",
        help="an experiment file, or the name of a shipped one (see list experiments), then "
        "settings that replace the file's (values are YAML)",
    ),
    Option(
        "--algorithm",
        metavar="NAME",
        help="name, package.module:Class or .py file (see list algorithms)",
    ),
    Option(
        "--env", metavar="NAME", help="environment, such as gym:CartPole-v1 (see list environments)"
    ),
    Option("--seed", type=int, metavar="S", help="seed of the run (overrides the config)"),
    Option("--agents", type=int, metavar="N", help="number of processes that step environments"),
    Option("--evals", type=int, metavar="N", help="number of processes that evaluate"),
)


def allow_change(key: str) -> Option:
    """Returns the option for changes of a resumed run; ``key`` says which key it names."""
    return Option(
        "--allow-change",
        action="extend",
        type=lambda keys: keys.split(","),
        default=[],
        metavar="KEY",
        help=f"with --resume: {key} that may differ; a,b for several",
    )


# The run folder, and how it is resumed.
FOLDER = (
    Option("--folder", help="run folder; default: runs/<name>-<date>-<time>"),
    Option(
        "--no-snapshot",
        dest="snapshot",
        action="store_const",
        const=False,
        help="keep no archive of the code in the run folder",
    ),
    Option(
        "--resume",
        action="store_true",
        help="continue the run in the folder, or that of a mirror: --resume URL",
    ),
    allow_change("key outside session_config"),
    Option(
        "--checkpoint",
        metavar="best|latest|STEP",
        help="with --resume: checkpoint to go on from; newer ones are set aside",
    ),
    Option(
        "--from",
        dest="start_from",
        metavar="RUN[:best|latest|STEP]",
        help="begin a new run with the networks of another run's checkpoint, or of trained:NAME",
    ),
    Option(
        "--parts",
        type=lambda parts: parts.split(","),
        metavar="PART",
        help="with --from: take only this part of the networks, such as torso; a,b for several",
    ),
)
HOST = Option(
    "--host",
    metavar="ADDRESS",
    help="address of this machine that others can reach; lets them join (see join --print)",
)
SNAPSHOT = Option(
    "--snapshot",
    dest="from_snapshot",
    action="store_true",
    help="use the code that the run archived at its start, instead of the installed code",
)
TRAINED = Option(
    "--trained",
    action="store_true",
    help="RUN is a trained policy that comes with the library (surreal-like list trained), as "
    "trained:RUN is",
)
IMPORT_PATH = Option(
    "--import-path",
    action="append",
    default=[],
    metavar="FOLDER",
    help="folder with modules that the run needs and its code/ does not have",
)
STOCHASTIC = Option(
    "--stochastic",
    action="store_true",
    help="sample actions from the policy instead of the best ones",
)
SHOWN = Group(
    "what is shown",
    Option("--quiet", action="store_true", help="show only errors"),
    Option("--json", action="store_true", help="print result.json on standard output"),
)


def token_options(made_by: str) -> Group:
    """Returns the options for a token; ``made_by`` is the command that prints it."""
    return Group(
        None,
        Option(
            "--token",
            help=f"made by {made_by}; other users of this machine can see it in the list of "
            "processes, so rather:",
        ),
        Option(
            "--token-file",
            metavar="FILE",
            help=f"file that has the token; without both options it is the variable {TOKEN}",
        ),
    )


@contextmanager
def suggesting_import_path() -> Iterator[None]:
    """Adds the option ``--import-path`` to the error of a module that is not found."""
    try:
        yield
    except ConfigError as error:
        if "No module named" not in str(error):
            raise
        where = "give the folder that holds it: --import-path FOLDER"
        raise ConfigError(f"{str(error).partition('; write file.py')[0]}; {where}") from None


_OTHERS = stat.S_IRGRP | stat.S_IROTH


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


# Options of the commands that are fields of a request.
_OPTIONS = (
    *("algorithm", "env", "seed", "agents", "evals", "host", "insecure", "snapshot"),
    *("folder", "resume", "allow_change", "checkpoint", "start_from", "parts"),
)


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
