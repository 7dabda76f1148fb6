"""Heartbeat of a trial in the folder of its tuning, by the wall clock."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from session.process.heartbeat import Beat, write_beat
from session.process.periodic import Every
from session.process.state import State

# Entries of the status: processor time of the process and of its children that have ended; memory
# of the process and of all below it, pages that several share in equal parts.
CPU_SECONDS, MEMORY_BYTES = "cpu_seconds", "memory_bytes"
_SECONDS = 1.0
# The kernel adds up all pages for it: some milliseconds.
_MEMORY_SECONDS = 10.0


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
        self._memory_due = Every(seconds=_MEMORY_SECONDS, clock=time.monotonic)
        self._memory_bytes = 0

    def beat(
        self, doing: str = "", *, state: State = State.running, busy_seconds: float = 0.0
    ) -> None:
        """Writes the heartbeat now."""
        now, pid = time.time(), os.getpid()
        beat = Beat(self._name, self._incarnation, state, pid, now, busy_seconds, doing)
        if self._memory_due():
            self._memory_bytes = _memory_bytes()
        beat.status = {CPU_SECONDS: sum(os.times()[:4]), MEMORY_BYTES: self._memory_bytes}
        write_beat(self._alive, beat)

    def tick(self, doing: str = "") -> None:
        """Writes the heartbeat if it is due."""
        if self._due():
            self.beat(doing)


def _memory_bytes() -> int:
    this, total = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        # One that has just ended has no memory; of another user's it cannot be read.
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total
