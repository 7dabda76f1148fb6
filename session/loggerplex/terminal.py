"""A component that was started in a terminal shows its records there, too."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Self

# Where standard error is kept in a file as well, as in a window of tmux, this names the terminal.
TERMINAL = "SURREAL_LIKE_TERMINAL"
_STANDARD_ERROR = 2
_TEXT_LIMIT = 300


class Terminal:
    """A terminal that takes a line at once or never: nobody waits for a person who holds it.

    Args:
        descriptor: of the terminal, its own, open for writing without blocking.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of_process(cls) -> Self | None:
        """The terminal that this process was started in; None where nobody looks at one."""
        path = os.environ.get(TERMINAL, "")
        if not path and os.isatty(_STANDARD_ERROR):
            # Opened again: what is set for this descriptor must not hold for the user's shell.
            path = f"/proc/self/fd/{_STANDARD_ERROR}"
        try:
            return cls(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)) if path else None
        except OSError:
            return None

    def record(self, seconds: float, level: str, text: str) -> None:
        """Shows a log record as one short line.

        Args:
            seconds: when, since 1970.
            level: such as ``warning``.
            text: of several lines the first and the last are shown.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        short = " ... ".join(lines[:1] + lines[1:][-1:])
        self.line(f"{_clock(seconds)} {level:<7} {short[:_TEXT_LIMIT]}")

    def line(self, text: str) -> None:
        """Shows a line; what the terminal does not take at once is lost, and stands in the log."""
        shown = "".join(letter if letter.isprintable() else "?" for letter in text)
        if self._descriptor >= 0:
            with suppress(OSError):
                os.write(self._descriptor, f"{shown}\n".encode("utf-8", "backslashreplace"))

    def show(self, text: str) -> None:
        """Shows a line of now."""
        self.line(f"{_clock(time.time())} {text}")

    def silence(self) -> None:
        """From now on nothing is shown."""
        # Not closed: another thread may be writing, and the number be another file's then.
        self._descriptor = -1


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
