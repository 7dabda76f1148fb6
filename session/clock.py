"""Where components take their time from: the machine, or counted rounds."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings, both in seconds."""

    def now(self) -> float:
        """A time that only rises, for durations."""
        ...

    def time(self) -> float:
        """The wall clock, for stamps."""
        ...


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()


def stamp_of(clock: Clock) -> dict[str, float]:
    """A new time for a record that was stamped by the wall clock, empty where that is in use."""
    return {} if isinstance(clock, WallClock) else {"time": clock.time()}


class CountedClock:
    """A clock that is told: one round of the serial launcher is one millisecond."""

    def __init__(self) -> None:
        self._rounds = 0

    def advance(self) -> None:
        """One round has passed."""
        self._rounds += 1

    def now(self) -> float:
        """Rounds, as seconds."""
        return self._rounds / 1000

    def time(self) -> float:
        """The same as :meth:`now`: a serial run starts at time 0."""
        return self.now()
