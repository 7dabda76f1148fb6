"""Clocks of components: the machine's clock, or a counter of rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self


class Clock(Protocol):
    """Two readings, both in seconds."""

    def now(self) -> float:
        """Monotonic time [s], for durations."""
        ...

    def time(self) -> float:
        """Wall-clock time [s], for time stamps."""
        ...


class WallClock:
    """The machine's clock: `now` is the monotonic one, `time` counts from 1970.

    The functions of Python themselves: a step of an agent reads the time six times.
    """

    now = staticmethod(time.monotonic)
    time = staticmethod(time.time)


@lru_cache(maxsize=1)
def boot_number() -> float:
    """Returns a number of this boot of the machine: :meth:`Clock.now` counts from there.

    It is 0 where the system has none.
    """
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return 0.0
    # 48 bits: a float holds them exactly.
    return float(int(text.replace("-", "")[:12], 16))


class Moment(NamedTuple):
    """A moment that processes of this machine measure from, whatever the system's clock is set to.

    Attributes:
        started: seconds since 1970.
        boot: number of the boot of the machine, 0 if unknown.
        began: seconds of the monotonic clock of that boot.
    """

    started: float
    boot: float
    began: float

    @classmethod
    def at(cls, started: float) -> Self:
        """Returns the moment of a recent wall-clock time of this machine."""
        return cls(started, boot_number(), time.monotonic() - (time.time() - started))

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> Self:
        """Returns the start of the part of a run, of the entry ``run`` of its config."""
        return cls(run.get("started", time.time()), run.get("boot", 0.0), run.get("began", 0.0))

    def seconds_since(self) -> float:
        """Returns the seconds since then, at least 0; since another boot by the wall clock."""
        if self.boot and self.boot == boot_number():
            return max(0.0, time.monotonic() - self.began)
        return max(0.0, time.time() - self.started)


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
