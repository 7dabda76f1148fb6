"""Bound on the lines of log that others can cause, whatever they send and under which names."""

from __future__ import annotations

import math
from collections.abc import Callable

# More senders than these share one entry; so do more kinds of one sender.
SENDERS, KINDS = 1024, 16
_SWEEP_SECONDS = 1.0


class LineLimit:
    """Decides which lines are written: few in each period for each sender and kind of line.

    Args:
        now: returns the time in seconds.
        seconds: length of a period; infinite: the first lines are the only ones.
        lines: lines of one sender and one kind in each period.
    """

    def __init__(self, now: Callable[[], float], *, seconds: float = 60.0, lines: int = 1) -> None:
        self._now, self._seconds, self._lines = now, seconds, lines
        # Sender -> kind -> start of the period, and lines since then.
        self._counts: dict[str, dict[str, tuple[float, int]]] = {}
        self._sweep_at = -math.inf

    def __len__(self) -> int:
        """Returns the number of entries."""
        return sum(map(len, self._counts.values()))

    def admit(self, sender: str, kind: str = "") -> str | None:
        """Counts a line; returns a text to append to it, None if it is not to be written.

        Args:
            sender: name or address of the one who has caused it.
            kind: kind of the line, such as the code of a refusal.
        """
        now = self._now()
        kinds = self._kinds_of(sender, now)
        if kind not in kinds and len(kinds) >= KINDS:
            kind = ""
        began, count = kinds.get(kind, (now, 0))
        left_out = 0
        if now - began >= self._seconds:
            left_out = max(0, count - self._lines)
            began, count = now, 0
        kinds[kind] = began, count + 1
        if count >= self._lines:
            return None
        return f" ({left_out} more since the last such line)" if left_out else ""

    def _kinds_of(self, sender: str, now: float) -> dict[str, tuple[float, int]]:
        if sender not in self._counts and len(self._counts) >= SENDERS:
            self._sweep(now)
            if len(self._counts) >= SENDERS:
                sender = ""
        return self._counts.setdefault(sender, {})

    def _sweep(self, now: float) -> None:
        """Forgets the senders whose periods are over; at most once a second, since it is slow."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_SECONDS
        self._counts = {
            sender: kinds
            for sender, kinds in self._counts.items()
            if any(now - began < self._seconds for began, _ in kinds.values())
        }
