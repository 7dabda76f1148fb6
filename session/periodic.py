"""What is due every so often, and how fast things happen, by a clock that is passed in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

# Arrivals that a rate tells apart in its window, and how many it keeps however old they are.
_MARKS = 20
_FEWEST = 4


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
    """Events per second over the last `window_seconds`, or over the last few times that some came.

    What comes seldom and in large amounts is measured from arrival to arrival, so that it neither
    reads 0 between two of them nor jumps at each. It is 0 once nothing has come for far longer.
    """

    def __init__(self, *, window_seconds: float = 10.0, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._window_seconds = window_seconds
        self.begin()

    def begin(self, total: float = 0.0) -> None:
        """Forgets all that has come; from now on `total` is what there was before."""
        self.total = total
        # When something came, and how much there was then: the oldest is where the window begins.
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
            marks.pop()  # as near to the one before as the window can tell apart
        marks.append((now, self.total))
        while len(marks) > _FEWEST and marks[1][0] <= now - self._window_seconds:
            marks.popleft()

    def reach(self, total: float) -> None:
        """Counts what a total has grown by."""
        self.add(total - self.total)

    def per_second(self) -> float:
        """The rate now; 0 before any time has passed."""
        now, (start, before) = self._clock(), self._marks[0]
        gap = (self._last - start) / max(1, len(self._marks) - 1)
        silent = now - self._last
        if silent > max(self._window_seconds, _FEWEST * gap):
            return 0.0
        # For as long as the next amount is not due yet, its time is not counted either.
        passed = max(self._last - start, now - start - gap)
        return (self.total - before) / passed if passed > 0 else 0.0
