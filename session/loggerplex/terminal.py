"""Shows log records in the terminal in which a component was started."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Self

# Environment variable: path of the terminal if stderr also goes to a file, as in tmux.
TERMINAL = "SURREAL_LIKE_TERMINAL"
_STANDARD_ERROR = 2
_TEXT_LIMIT = 300


def printable(text: str) -> str:
    """Returns a text with a ? for each control character, which a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Terminal:
    """A terminal with non-blocking writes: a person who pauses it does not stop the component.

    Args:
        descriptor: own descriptor of the terminal, opened for non-blocking writes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of_process(cls) -> Self | None:
        """Opens the terminal in which this process was started; None if there is none."""
        path = os.environ.get(TERMINAL, "")
        if not path and os.isatty(_STANDARD_ERROR):
            # Opened again: O_NONBLOCK on the inherited descriptor would affect the user's shell.
            path = f"/proc/self/fd/{_STANDARD_ERROR}"
        try:
            return cls(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)) if path else None
        except OSError:
            return None

    def record(self, seconds: float, level: str, text: str) -> None:
        """Shows a log record as one short line.

        Args:
            seconds: time since 1970 [s].
            level: such as ``warning``.
            text: only the first and the last of several lines are shown.
        """
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        short = " ... ".join(lines[:1] + lines[1:][-1:])
        self.line(f"{_clock(seconds)} {level:<7} {short[:_TEXT_LIMIT]}")

    def line(self, text: str) -> None:
        """Shows a line; a part that cannot be written at once is lost here, but is in the log."""
        shown = printable(text)
        if self._descriptor >= 0:
            with suppress(OSError):
                os.write(self._descriptor, f"{shown}\n".encode("utf-8", "backslashreplace"))

    def show(self, text: str) -> None:
        """Shows a line with the present time."""
        self.line(f"{_clock(time.time())} {text}")

    def silence(self) -> None:
        """Stops all output."""
        # Not closed: another thread may be writing, and the number may be reused for another file.
        self._descriptor = -1


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
