"""Periodic triggers, waits, rates and stopwatches; most get their clock as an argument."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

# Time resolution of a rate: marks per window; and the minimum number of marks kept at any age.
_MARKS = 20
_FEWEST = 4
# Sums of times are rounded. A time that is compared first, before the exact condition, is this much
# earlier.
MOMENT_SECONDS = 1e-5


def double_pause(first_seconds: float, failures: int, limit_seconds: float) -> float:
    """Returns the pause after so many earlier failures: it doubles with each, up to a limit."""
    # A float cannot hold every power of 2.
    return min(limit_seconds, first_seconds * 2.0 ** min(failures, 64))


def wait_until(ready: Callable[[], object], seconds: float, *, look_seconds: float) -> bool:
    """Calls a function until it is true or the time is over; returns True if it is true.

    This thread sleeps between the calls: components wait in their loops instead.

    Args:
        ready: the function.
        seconds: longest time.
        look_seconds: time between two calls.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() >= deadline:
            return False
        time.sleep(look_seconds)
    return True


class Every:
    """Periodic trigger: due every `calls` calls or every `seconds`, whichever comes first.

    0 means never. Due times are on a fixed grid from the start, so late calls cause no drift;
    several missed times trigger only once.

    Attributes:
        at: reading of the clock before which no call finds it due; who has read the clock may
            compare first.
    """

    def __init__(self, *, calls: int = 0, seconds: float = 0.0, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls = calls
        self._seconds = seconds
        self._since = clock()
        self.at = -math.inf
        self._begin()

    def _begin(self) -> None:
        self._called = 0
        if self._seconds and not self._calls:
            # The difference in a call decides.
            self.at = self._since + self._seconds - MOMENT_SECONDS

    def __call__(self) -> bool:
        """Counts one call; True if due, which begins the next period."""
        self._called += 1
        elapsed = self._clock() - self._since
        if 0 < self._seconds <= elapsed:
            self._since += self._seconds * math.floor(elapsed / self._seconds)
        elif 0 < self._calls <= self._called:
            self._since += elapsed
        else:
            return False
        self._begin()
        return True


class Rate:
    """Events per second over the last `window_seconds`, or over the last few arrivals.

    Rare arrivals of large amounts are measured from arrival to arrival, so that the rate is not 0
    between two of them and does not jump at each. It is 0 once none has come for far longer.
    """

    def __init__(self, *, window_seconds: float = 10.0, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self.begin()

    def begin(self, total: float = 0.0) -> None:
        """Resets the rate; counting starts at `total`."""
        self.total = total
        # (time of an arrival, total then); the oldest mark is the start of the window.
        self._marks: deque[tuple[float, float]] = deque([(self._clock(), total)])
        self._last = self._marks[0][0]

    def add(self, amount: float = 1.0) -> None:
        """Counts `amount` events now."""
        if not amount:
            return
        now = self._last = self._clock()
        self.total += amount
        marks = self._marks
        if len(marks) > 1 and now - marks[-2][0] < self._window_seconds / _MARKS:
            marks.pop()  # merged: closer than the time resolution
        marks.append((now, self.total))
        while len(marks) > _FEWEST and marks[1][0] <= now - self._window_seconds:
            marks.popleft()

    def reach(self, total: float) -> None:
        """Counts the increase of a total since the last call."""
        self.add(total - self.total)

    def per_second(self) -> float:
        """The present rate; 0 before any time has passed."""
        now, (start, before) = self._clock(), self._marks[0]
        gap = (self._last - start) / max(1, len(self._marks) - 1)
        silent = now - self._last
        if silent > max(self._window_seconds, _FEWEST * gap):
            return 0.0
        # Until the next arrival is due, the time since the last one is not counted.
        passed = max(self._last - start, now - start - gap)
        return (self.total - before) / passed if passed > 0 else 0.0


class Stopwatch:
    """Adds up the time between hold and release, the present hold included.

    Args:
        now: seconds, of a clock that only rises.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: float | None = None
        self._over = 0.0

    @property
    def held(self) -> bool:
        """True while it is held back."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """Seconds for which it has been held back so far."""
        return self._over if self._since is None else self._over + self._now() - self._since

    def hold(self, held: bool) -> None:
        """Starts or ends the hold; repeating the same value changes nothing."""
        if held and self._since is None:
            self._since = self._now()
        elif not held and self._since is not None:
            self._over, self._since = self.seconds, None
