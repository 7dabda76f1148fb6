"""Clocks of components: the machine's clock, or a counter of rounds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Two readings, both in seconds."""

    def now(self) -> float:
        """Monotonic time [s], for durations."""
        ...

    def time(self) -> float:
        """Wall-clock time [s], for time stamps."""
        ...


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()


def boot_number() -> float:
    """Returns a number of this boot of the machine: :meth:`Clock.now` counts from there."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return 0.0
    # 48 bits: a float holds them exactly.
    return float(int(text.replace("-", "")[:12], 16))


def stamp_of(clock: Clock) -> dict[str, float]:
    """Returns a new time stamp for a record stamped by the wall clock; {} if `clock` is that."""
    return {} if isinstance(clock, WallClock) else {"time": clock.time()}


class CountedClock:
    """A clock that is advanced by calls: one round of the serial launcher is one millisecond."""

    def __init__(self) -> None:
        self._rounds = 0

    def advance(self) -> None:
        """Counts one round."""
        self._rounds += 1

    def now(self) -> float:
        """Rounds as seconds: 1 ms each."""
        return self._rounds / 1000

    def time(self) -> float:
        """The same as :meth:`now`: a serial run starts at time 0."""
        return self.now()
