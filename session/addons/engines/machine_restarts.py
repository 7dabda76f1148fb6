"""Restarts of machines: the base of engines that only start and end processes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from session.addons.engines.machines import Machines, MachineSpec, machine_name
from session.launchers.instruction import Event
from session.process.periodic import double_pause, wait_until

_GRACE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
# A machine that ends soon after its start is started again after 1, 2, 4, ... 30 s.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0


class Work(ABC):
    """The process of one machine."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """True once it runs on a node."""

    @abstractmethod
    def poll(self) -> str | None:
        """Returns None before its end, then the cause, empty if it has ended by itself."""

    @abstractmethod
    def terminate(self) -> None:
        """Sends SIGTERM."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it at once, and waits until it has ended."""


@dataclass(slots=True)
class _Machine:
    """One machine: its work while it has any, and when it may start again.

    Attributes:
        shown: True once its start was reported.
        leaves: True once it was asked to end.
    """

    work: Work | None = None
    failures: int = 0
    began_at: float = 0.0
    due_at: float = 0.0
    shown: bool = False
    leaves: bool = False


class RestartedMachines(Machines):
    """Numbers the machines, and starts one that has ended again, after a pause.

    Args:
        spec: command and resources of each machine.
    """

    def __init__(self, spec: MachineSpec) -> None:
        super().__init__(spec)
        self._machines: dict[int, _Machine] = {}
        self._wanted = 0

    @abstractmethod
    def _begin(self, name: str) -> Work:
        """Starts the process of a machine, without waiting."""

    def want(self, number: int) -> None:
        self._wanted = number

    @property
    def num(self) -> int:
        return sum(each.work is not None and each.shown for each in self._machines.values())

    def _poll(self) -> Iterable[Event]:
        for number in range(self._wanted):
            machine = self._machines.setdefault(number, _Machine())
            if machine.work is None and time.monotonic() >= machine.due_at:
                machine.work = self._begin(machine_name(number))
                machine.began_at, machine.shown, machine.leaves = time.monotonic(), False, False
        return [each for number in list(self._machines) for each in self._look(number)]

    def _look(self, number: int) -> list[Event]:
        """Asks one that is not wanted to end; returns what has happened to it."""
        machine, name, events = self._machines[number], machine_name(number), []
        if machine.work is None:
            return []
        if not machine.shown and machine.work.begun:
            machine.shown = True
            events.append(Event(name, "started"))
        if (cause := machine.work.poll()) is None:
            if number >= self._wanted and not machine.leaves:
                machine.leaves = True
                machine.work.terminate()
            return events
        machine.work = None
        self._pause(machine)
        kind = "lost" if cause and not machine.leaves else "ended"
        return [*events, Event(name, kind, cause)]

    def _pause(self, machine: _Machine) -> None:
        """Sets when a machine that has ended may start again."""
        now = time.monotonic()
        if machine.leaves or now - machine.began_at > _LONGEST_PAUSE_SECONDS:
            machine.failures = 0
        if not machine.leaves:
            pause = double_pause(_FIRST_PAUSE_SECONDS, machine.failures, _LONGEST_PAUSE_SECONDS)
            machine.due_at, machine.failures = now + pause, machine.failures + 1

    def close(self) -> None:
        self._wanted = 0
        wait_until(self._have_ended, _GRACE_SECONDS, look_seconds=_LOOK_SECONDS)
        for machine in self._machines.values():
            if machine.work is not None:
                machine.work.kill()
                machine.work = None

    def _have_ended(self) -> bool:
        self.poll()
        return not any(each.work for each in self._machines.values())
