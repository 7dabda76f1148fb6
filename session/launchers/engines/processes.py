"""Machines that are processes here: the simplest engine, for tests and for a large workstation."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from session.launchers.engines.machines import Machines, Order, machine_name
from session.launchers.instruction import Event, exit_error
from session.process.component import LIFELINE, TOKEN

_GRACE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
# A machine that ends soon after its start is started again after 1, 2, 4, ... 30 s.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
_SHOWN_BYTES = 2000


@dataclass(slots=True)
class _Place:
    """One machine: its process while it has one, and when it may start again.

    Attributes:
        leaves: True once it was asked to end.
    """

    process: subprocess.Popen[bytes] | None = None
    pause_seconds: float = _FIRST_PAUSE_SECONDS
    began_at: float = 0.0
    due_at: float = 0.0
    leaves: bool = False


class ProcessMachines(Machines):
    """Runs each machine as a child of this process, which ends with it.

    Args:
        order: what they run.
    """

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._places: dict[int, _Place] = {}
        self._wanted = 0
        # Its other end is closed when this process dies, however that happens.
        self._reader, self._writer = os.pipe()

    def want(self, number: int) -> None:
        self._wanted = number

    @property
    def num(self) -> int:
        return sum(each.process is not None for each in self._places.values())

    def poll(self) -> list[Event]:
        events = [each for number in list(self._places) for each in self._look(number)]
        for number in range(self._wanted):
            place = self._places.setdefault(number, _Place())
            if place.process is None and time.monotonic() >= place.due_at:
                self._start(number, place)
                events.append(Event(machine_name(number), "started"))
        return events

    def _start(self, number: int, place: _Place) -> None:
        name = machine_name(number)
        self._order.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._order.folder / f"{name}.txt").open("ab") as output:
            place.process = subprocess.Popen(
                self._order.words(name),
                env={**os.environ, TOKEN: self._order.token, LIFELINE: str(self._reader)},
                pass_fds=[self._reader],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        place.began_at, place.leaves = time.monotonic(), False

    def _look(self, number: int) -> list[Event]:
        """Asks one that is not wanted to end; returns the end of one that has ended."""
        place, name = self._places[number], machine_name(number)
        if place.process is None:
            return []
        if (code := place.process.poll()) is None:
            if number >= self._wanted and not place.leaves:
                place.leaves = True
                place.process.terminate()
            return []
        place.process = None
        now = time.monotonic()
        if place.leaves or now - place.began_at > _LONGEST_PAUSE_SECONDS:
            place.pause_seconds = _FIRST_PAUSE_SECONDS
        if not place.leaves:
            place.due_at = now + place.pause_seconds
            place.pause_seconds = min(2 * place.pause_seconds, _LONGEST_PAUSE_SECONDS)
        if code == 0:
            return [Event(name, "ended")]
        return [Event(name, "lost", f"{exit_error(code)}: {self._last_line(name)}")]

    def _last_line(self, name: str) -> str:
        with suppress(OSError):
            text = (self._order.folder / f"{name}.txt").read_bytes()[-_SHOWN_BYTES:]
            return text.decode(errors="replace").strip().rpartition("\n")[2]
        return ""

    def close(self) -> None:
        self._wanted = 0
        deadline = time.monotonic() + _GRACE_SECONDS
        while self.num and time.monotonic() < deadline:
            self.poll()
            time.sleep(_LOOK_SECONDS)
        for place in self._places.values():
            if place.process is not None:
                os.killpg(place.process.pid, signal.SIGKILL)
                place.process.wait()
                place.process = None
        for descriptor in (self._reader, self._writer):
            os.close(descriptor)
