"""Heartbeat of a trial in the folder of its tuning, by the wall clock."""

from __future__ import annotations

import os
import time
from pathlib import Path

from session.process.heartbeat import Beat, write_beat
from session.process.periodic import Every
from session.process.state import State

# Entry of the status: processor time of the process and of its children that have ended.
CPU_SECONDS = "cpu_seconds"
_SECONDS = 1.0


class TrialBeat:
    """Writes the heartbeat of a trial once a second.

    The components of a serial run beat by a counted clock, which says nothing about a process that
    hangs.

    Args:
        tuning: folder of the tuning.
        name: of the trial.
    """

    def __init__(self, tuning: Path, name: str) -> None:
        self._alive, self._name = tuning / "alive", name
        self._incarnation = time.time_ns() // 1_000_000
        self._due = Every(seconds=_SECONDS, clock=time.monotonic)

    def beat(
        self, doing: str = "", *, state: State = State.running, busy_seconds: float = 0.0
    ) -> None:
        """Writes the heartbeat now."""
        now, pid = time.time(), os.getpid()
        beat = Beat(self._name, self._incarnation, state, pid, now, busy_seconds, doing)
        beat.status = {CPU_SECONDS: sum(os.times()[:4])}
        write_beat(self._alive, beat)

    def tick(self, doing: str = "") -> None:
        """Writes the heartbeat if it is due."""
        if self._due():
            self.beat(doing)
