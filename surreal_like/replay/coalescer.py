"""How long experience may lie in its socket, so that several chunks share one awakening."""

from __future__ import annotations

from collections.abc import Callable

# After a sleep a chunk costs several times what it costs behind another one.
_TOGETHER = 4
# Where they come so fast they gather by themselves.
_LEAST_SECONDS = 0.002
_MOST_SECONDS = 0.03
# So many newest chunks say how fast they come.
_NEWEST = 8


class WakeupCoalescer:
    """After chunks have been taken in, the next need not wake replay at once: some may gather.

    It lasts as long as a few chunks take to come, by the mean gap between the newest ones, and
    never long. Whoever wants rows wakes replay all the same, and then everything is taken in before
    it is answered.

    Args:
        now: seconds, of a clock that only rises.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._gap = 0.0
        self._at = now()
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left of it, 0 or less once it is over."""
        return self._until - self._now()

    def begin(self, taken: int) -> None:
        """So many chunks have been taken in, at least 1."""
        now = self._now()
        gap = min((now - self._at) / taken, _MOST_SECONDS / _TOGETHER)
        self._gap += (gap - self._gap) * min(1.0, taken / _NEWEST)
        seconds = _TOGETHER * self._gap
        self._at, self._until = now, now + (seconds if seconds >= _LEAST_SECONDS else 0.0)
