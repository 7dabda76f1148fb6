"""The error tree of session: the message says what is wrong, where and what to do.

```
SurrealError            exit code 1, the root of every error that this system raises on purpose
├── ConfigError         2   a setting is missing, unknown or of the wrong kind
├── UsageError          2   a wrong command, a folder in use, an unknown run
│   └── MissingExtra    2   an optional package is not installed
├── WireError           1   the network
│   ├── DecodeError         bytes that are no message
│   ├── OversizeError       a message above its bound
│   ├── DeadlineError       no answer in time
│   └── RefusedError        the other side said no
│       └── AdmissionError 2    it does not let this side in: wrong keys, another protocol or run
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

# Exit code of a process whose first work failed in a way that would come again: no restart helps.
HOPELESS = 70


class SurrealError(Exception):
    """Every error that is raised on purpose: shown as one line, without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(SurrealError, AttributeError, KeyError):
    """A setting is missing, unknown or of the wrong kind.

    It is an AttributeError and a KeyError too, so that `hasattr`, `copy` and `pickle` find in a
    Config what they expect.
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
        """The error for `wanted` (what the user asked for), naming the extra to install."""
        return cls(f"{wanted} needs a package that is not installed: {install_line(extra)}")


class WireError(SurrealError):
    """Something went wrong between two processes."""


class DecodeError(WireError):
    """Bytes that are no valid message."""


class OversizeError(WireError):
    """A message is larger than its bound."""


class DeadlineError(WireError):
    """No answer arrived in time."""


class RefusedError(WireError):
    """The other side refused: another protocol, config, specs, or an older incarnation."""


class AdmissionError(RefusedError):
    """The other side does not let this one in, and would not later: no key, another protocol."""

    exit_code: ClassVar[int] = 2


class CheckpointError(SurrealError):
    """State cannot be saved, or what was saved cannot be restored."""


class RunError(SurrealError):
    """A run failed: the message is its first error."""


# What may be different at another try, although nothing was changed.
_PASSING = (OSError, MemoryError, WireError, CheckpointError, RunError)


def may_pass(error: BaseException) -> bool:
    """Whether another try may go well although nothing is changed.

    That is so for what the network, a disk, a lack of memory or another process caused. Any other
    error is a mistake in the code or in its settings, and would come again.
    """
    return isinstance(error, _PASSING)


def describe(error: BaseException) -> str:
    """The error in one line, with the place in the user's code that it comes from.

    The place is the innermost call outside of this library, of installed packages and of Python
    itself; without one, of an error that is no SurrealError, the innermost call in this library.
    """
    line = str(error) if isinstance(error, SurrealError) else repr(error)
    place = _place(error)
    return f"{line}, in {place}" if place else line


def describe_code(code: CodeType, line: int = 0) -> str:
    """The name and the place of a function: ``MyLearner.learn (my_algorithm.py:52)``.

    Args:
        code: of the function.
        line: in its file; 0: where it begins.
    """
    # Python 3.10 does not know the class.
    name = getattr(code, "co_qualname", code.co_name)
    return f"{name} ({_short(code.co_filename)}:{line or code.co_firstlineno})"


def _place(error: BaseException) -> str:
    own = users = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        place = describe_code(frame.f_code, line)
        if package in _OWN_PACKAGES:
            own = place
        elif not _is_installed(frame.f_code.co_filename):
            users = place
    return users or ("" if isinstance(error, SurrealError) else own)


def _is_installed(file: str) -> bool:
    return file.startswith((*_INSTALLED, "<"))


def _short(file: str) -> str:
    """The path below the present folder, where it is there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
