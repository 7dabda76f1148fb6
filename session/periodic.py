"""What is due every so often, and how fast things happen, by a clock that is passed in."""

from __future__ import annotations

import math
from collections.abc import Callable


class Every:
    """Says when something is due: every `calls` calls or every `seconds`, the first of both.

    0 stands for never. Due times lie on a grid from the start on, so that late calls cause no
    drift; what was missed meanwhile is due once, not many times.
    """

    def __init__(self, *, calls: int = 0, seconds: float = 0.0, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls = calls
        self._seconds = seconds
        self._called = 0
        self._since = clock()

    def __call__(self) -> bool:
        """Counts one call; True if it is due, and then begins anew."""
        self._called += 1
        elapsed = self._clock() - self._since
        if 0 < self._seconds <= elapsed:
            self._since += self._seconds * math.floor(elapsed / self._seconds)
        elif 0 < self._calls <= self._called:
            self._since += elapsed
        else:
            return False
        self._called = 0
        return True


class Rate:
    """Events per second, the recent ones counting more: a weight falls to 1/e in `memory_seconds`.

    The weights are divided by their own integral since the start, so it is right from the start.
    """

    def __init__(self, *, memory_seconds: float = 5.0, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._memory_seconds = memory_seconds
        self._start = self._at = clock()
        self._weighted = 0.0
        self.total = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Counts `amount` events now."""
        now = self._clock()
        self._weighted = self._faded(now) + amount
        self._at = now
        self.total += amount

    def per_second(self) -> float:
        """The rate now; 0 before any time has passed."""
        now = self._clock()
        integral = -self._memory_seconds * math.expm1((self._start - now) / self._memory_seconds)
        return self._faded(now) / integral if integral > 0 else 0.0

    def _faded(self, now: float) -> float:
        return self._weighted * math.exp((self._at - now) / self._memory_seconds)
