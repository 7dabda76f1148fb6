"""The ``surreal-like`` command: runs a subcommand and shows errors as one line."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence

from main.cli.commands import all_commands, overview
from main.cli.output import HelpShown, OutputError, prepare_output
from session.addons import Command, load
from session.did_you_mean import did_you_mean
from session.errors import SurrealError, UsageError, describe, is_of_users_code
from session.folder import UNPACKED
from session.hidden import hide_secrets
from session.loggerplex.terminal import printable
from session.version import VERSION

INTERRUPTED = 130
_COMMIT_DIGITS = 12


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code.

    0: done, and for a run its goal met or no goal set. 1: a run failed. 2: the command or its
    config is wrong. 3: a budget ended before the goal. 130: interrupted, after a clean stop.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with prepare_output():
            return _end(words)
    except OutputError as error:
        if error.unwanted:
            return 0
        show_error(error)
        return error.exit_code
    finally:
        if UNPACKED in os.environ:
            shutil.rmtree(os.environ[UNPACKED], ignore_errors=True)


def _end(words: list[str]) -> int:
    """Runs the command; returns the exit code of its end, after showing an error."""
    try:
        return _run(words)
    except OutputError:
        raise
    except SurrealError as error:
        show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except HelpShown:
        return 0
    except (Exception, SystemExit) as error:
        # Only a user's code raises SystemExit here. An error of this library needs its traceback.
        if not isinstance(error, SystemExit) and not is_of_users_code(error):
            raise
        show_error(f"the experiment's code failed: {describe(error)}")
        return SurrealError.exit_code


# A token of a run or a client that was given in the place of another word.
_TOKEN = re.compile(r"\b(s[lg]1-)[\w=-]+")


def show_error(error: object) -> None:
    """Writes an error as one line, without the secrets of tokens and URLs."""
    line = _TOKEN.sub(r"\1...", hide_secrets(" ".join(str(error).split())))
    sys.stderr.write(f"surreal-like: error: {printable(line)}\n")


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"surreal-like {_version()}")
        return 0
    code: int = load(_find(words[0]).home)(words[1:])
    return code


def _version() -> str:
    """Returns the version, with the commit of a checkout."""
    # Imported here: no other command is to wait for it.
    from surreal_like.experiment.user_code import library_revision

    commit = library_revision()[:_COMMIT_DIGITS]
    return f"{VERSION} (commit {commit})" if commit else VERSION


def _find(name: str) -> Command:
    for command in all_commands():
        if command.name == name:
            return command
    names = [command.name for command in all_commands()]
    hint = did_you_mean(name, names, otherwise=f"there are {', '.join(names)}")
    raise UsageError(f"no command '{name}'; {hint}")
