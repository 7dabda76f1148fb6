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

from typing import ClassVar, Self

from session.program import install_line


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
