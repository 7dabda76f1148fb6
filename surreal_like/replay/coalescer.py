"""Wake-up coalescing: delays reads so that several chunks are handled per wake-up."""

from __future__ import annotations

from collections.abc import Callable

# The first chunk after a sleep costs several times as much as one that follows another.
_TOGETHER = 4
# Chunks that arrive faster gather without a delay.
_LEAST_SECONDS = 0.002
_MOST_SECONDS = 0.03
# Newest chunks over which the mean gap is taken.
_NEWEST = 8


class WakeupCoalescer:
    """Delays the next wake-up after chunks were read, so that several chunks gather.

    The delay is the time in which 4 chunks arrive, by the mean gap between the newest ones: at most
    30 ms, and none below 2 ms. A request for rows wakes replay at once, and all chunks are read
    before it is answered.

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
        """Seconds left of the delay, 0 or less once it is over."""
        return self._until - self._now()

    def begin(self, taken: int) -> None:
        """Starts a delay after ``taken`` chunks, at least 1, were read."""
        now = self._now()
        gap = min((now - self._at) / taken, _MOST_SECONDS / _TOGETHER)
        self._gap += (gap - self._gap) * min(1.0, taken / _NEWEST)
        seconds = _TOGETHER * self._gap
        self._at, self._until = now, now + (seconds if seconds >= _LEAST_SECONDS else 0.0)
