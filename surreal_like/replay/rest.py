"""How long experience may lie in its socket, so that several chunks share one awakening."""

from __future__ import annotations

from collections.abc import Callable

# After a sleep a chunk costs several times what it costs behind another one.
_TOGETHER = 4
_LEAST_SECONDS = 0.001
_MOST_SECONDS = 0.03


class Rest:
    """After chunks have been taken in, the next need not wake replay at once: some may gather.

    It is as long as a few chunks take to come by what came last time, and never long. Whoever wants
    rows wakes replay all the same, and then everything is taken in before it is answered.

    Args:
        now: seconds, of a clock that only rises.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seconds = 0.0
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left of it, 0 or less once it is over."""
        return self._until - self._now()

    def begin(self, taken: int) -> None:
        """So many chunks have been taken in, at least 1."""
        if self._seconds:
            self._seconds = min(self._seconds * _TOGETHER / taken, _MOST_SECONDS)
        elif taken < _TOGETHER:
            self._seconds = _LEAST_SECONDS
        if self._seconds < _LEAST_SECONDS:
            self._seconds = 0.0
        self._until = self._now() + self._seconds
