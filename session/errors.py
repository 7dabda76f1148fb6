"""The error tree of session: each message names the fault, its place and the remedy.

```
SurrealError            exit code 1, the base of every error that this system raises on purpose
├── ConfigError         2   a setting is missing, unknown or of the wrong kind
├── UsageError          2   a wrong command, a folder in use, an unknown run
│   └── MissingExtra    2   an optional package is not installed
├── WireError           1   the network
│   ├── DecodeError         bytes that are not a valid message
│   ├── OversizeError       a message above its bound
│   ├── DeadlineError       no answer in time
│   └── RefusedError        the peer refused a request
│       └── AdmissionError 2    the peer refuses permanently: wrong keys, another protocol or run
├── CheckpointError     1   state that cannot be saved or restored
└── RunError            1   a run failed; holds the first error
```
"""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from types import CodeType
from typing import ClassVar, Self

from session.program import install_line

_OWN_PACKAGES = ("session", "surreal_like", "main")
_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))

# Exit code of a process whose first work failed with a permanent error: a restart is useless.
HOPELESS = 70
# Exit code of a process that a signal has ended while the run goes on: it must be started again.
START_AGAIN = 75
# Exit code of a process that has ended because another one of its group did: both start again, and
# only the end of the other one counts.
FOLLOWS = 76
# Reason of a run that its machine or an engine asked to end: it goes on later.
NOTICE = "got SIGTERM"


class SurrealError(Exception):
    """Base of all errors raised on purpose; shown as one line, without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(SurrealError, AttributeError, KeyError):
    """A setting is missing, unknown or of the wrong kind.

    Also an AttributeError and a KeyError, because `hasattr`, `copy` and `pickle` expect these
    from a Config.
    """

    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        # KeyError would show the message in quotes.
        return Exception.__str__(self)


class UsageError(SurrealError):
    """The command or call itself is wrong: nothing was started and nothing overwritten."""

    exit_code: ClassVar[int] = 2


class MissingExtra(UsageError):
    """An optional package is not installed."""

    @classmethod
    def named(cls, wanted: str, extra: str) -> Self:
        """Makes the error for `wanted` (the requested feature), naming the extra to install."""
        return cls(f"{wanted} needs a package that is not installed: {install_line(extra)}")


class WireError(SurrealError):
    """Communication between two processes failed."""


class DecodeError(WireError):
    """Bytes are not a valid message."""


class OversizeError(WireError):
    """A message is larger than its bound."""


class DeadlineError(WireError):
    """No answer arrived in time."""


class RefusedError(WireError):
    """The peer refused: another protocol, config or specs, or an older incarnation."""


class AdmissionError(RefusedError):
    """The peer refuses this side permanently: no key, another protocol."""

    exit_code: ClassVar[int] = 2


class CheckpointError(SurrealError):
    """State cannot be saved, or saved state cannot be restored."""


class RunError(SurrealError):
    """A run failed; the message is its first error."""


# Errors that may not recur at the next try, without any change.
_PASSING = (OSError, MemoryError, WireError, CheckpointError, RunError)


def may_pass(error: BaseException) -> bool:
    """True if another try may succeed without any change.

    That holds for errors caused by the network, a disk, a lack of memory or another process. Any
    other error is a mistake in the code or in its settings, and would recur.
    """
    return isinstance(error, _PASSING)


def describe(error: BaseException) -> str:
    """Describes the error in one line, with its place in the user's code.

    The place is the innermost call outside this library, installed packages and Python itself. If
    there is none and the error is no SurrealError, it is the innermost call in this library.
    Notes of one line that were added to the error come last.
    """
    line = str(error) if isinstance(error, SurrealError) else repr(error)
    users, own = _places(error)
    place = users or ("" if isinstance(error, SurrealError) else own)
    # Longer ones are tracebacks of other processes.
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    return "; ".join([f"{line}, in {place}" if place else line, *notes])


def describe_code(code: CodeType, line: int = 0) -> str:
    """Returns name and place of a function: ``MyLearner.learn (my_algorithm.py:52)``.

    Args:
        code: code object of the function.
        line: line in its file; 0: its first line.
    """
    # co_qualname is new in Python 3.11.
    name = getattr(code, "co_qualname", code.co_name)
    return f"{name} ({_short(code.co_filename)}:{line or code.co_firstlineno})"


def is_of_users_code(error: BaseException) -> bool:
    """True if code outside this library, installed packages and Python itself raised the error."""
    return bool(_places(error)[0])


def _places(error: BaseException) -> tuple[str, str]:
    """Returns the innermost call in the user's code, and that in this library; or empty texts."""
    own = users = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        place = describe_code(frame.f_code, line)
        if package in _OWN_PACKAGES:
            own = place
        elif not _is_installed(frame.f_code.co_filename):
            users = place
    return users, own


def _is_installed(file: str) -> bool:
    return file.startswith((*_INSTALLED, "<"))


def _short(file: str) -> str:
    """Returns a path relative to the current folder if it is below it, else unchanged."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
