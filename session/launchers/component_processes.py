"""All components of a run as supervision sees them: who is started, told, given up, killed."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from session.component import Topology
from session.errors import HOPELESS, UsageError
from session.heartbeat import Beat
from session.launchers.component_process import ComponentProcess, Limits, Loss
from session.launchers.instruction import Event, Instruction, Signal, Start

_BACK_OFF_SECONDS = 0.25
_BACK_OFF_LIMIT_SECONDS = 5.0


class ComponentProcesses:
    """The components of one run and their processes; it knows nothing of the run's phases.

    Args:
        topology: the components.
        limits: deadlines of their processes.
    """

    def __init__(self, topology: Topology, limits: Limits) -> None:
        self.children = {component.name: ComponentProcess(component) for component in topology}
        self._topology = topology
        self._limits = limits

    @property
    def learner(self) -> ComponentProcess | None:
        """Who owns the run."""
        return next((c for c in self.children.values() if c.component.kind == "learner"), None)

    @property
    def gone(self) -> bool:
        """True if nobody is left, and nobody will be started."""
        return all(child.state == "gone" for child in self.children.values())

    def alive(self) -> Iterator[ComponentProcess]:
        """Yields those that have a process."""
        return (child for child in self.children.values() if child.alive)

    def start(self, child: ComponentProcess, now: float) -> Start:
        """Starts a process of a component."""
        child.start(now)
        return Start(child.name)

    def adopt(
        self, starts: Mapping[str, int], now: float, *, leave: Collection[str]
    ) -> list[Instruction]:
        """Goes on with components that somebody else has started; the others are started.

        Args:
            starts: component -> how often it was started.
            now: the time.
            leave: kinds of component that are not wanted where they are not there.
        """
        instructions: list[Instruction] = []
        for name in starts:
            if name not in self.children:
                self.children[name] = ComponentProcess(self._topology.component(name))
        for child in self.children.values():
            if child.name in starts:
                child.start(now)
                child.starts = starts[child.name]
            elif child.component.kind in leave:
                child.wanted, child.state = False, "gone"
            else:
                instructions.append(self.start(child, now))
        return instructions

    def start_due(self, now: float) -> list[Instruction]:
        """Starts those again that have waited long enough."""
        due = [c for c in self.children.values() if c.state == "waiting" and now >= c.due]
        return [
            each for child in due for each in (Event(child.name, "restart"), self.start(child, now))
        ]

    def cancel_starts(self) -> None:
        """Nobody is started any more."""
        for child in self.children.values():
            child.state = "gone" if child.state == "waiting" else child.state

    def terminate(self, child: ComponentProcess) -> Signal:
        """Asks a component to end."""
        child.told = True
        return Signal(child.name, signal.SIGTERM)

    def end_by(self, child: ComponentProcess, now: float) -> None:
        """Gives a component that was asked to end its time; then it is killed."""
        child.kill_at = now + self._limits.patience_seconds

    def record_death(self, child: ComponentProcess, loss: Loss) -> bool:
        """Notes a death; False if the component has died too often to be started again."""
        limits = child.component.restart
        recent = [each for each in child.losses if loss.time - each.time < limits.window_seconds]
        child.losses = [*recent, loss]
        # A wrong config or command does not become right by being tried again.
        wrong = child.exit_code == UsageError.exit_code and not child.ran
        hopeless = wrong or child.exit_code == HOPELESS
        if hopeless or len(recent) >= limits.max_restarts:
            return False
        child.state = "waiting"
        child.due = loss.time + _back_off_seconds(len(child.losses))
        return True

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """A component gave a sign of life."""
        self.children[beat.name].on_heartbeat(beat, now)

    def check_heartbeats(self, now: float) -> None:
        """Decides who has been silent for too long."""
        for child in self.alive():
            silent = child.silent_seconds(self._limits, now)
            if silent and not child.cause:
                child.cause = f"gave no sign of life for {silent:.0f} s while {child.state}"
                child.kill_at = now

    def kill_due(self, now: float) -> list[Instruction]:
        """Kills those whose time is up."""
        due = [child for child in self.alive() if now >= child.kill_at]
        for child in due:
            child.kill_at = math.inf
        return [Signal(child.name, signal.SIGKILL) for child in due]

    def extend_deadlines(self, seconds: float) -> None:
        """Nobody listened for so long: that is no fault of the processes."""
        for child in self.children.values():
            child.extend_deadline(seconds)

    def want(self, name: str, now: float) -> list[Instruction]:
        """There is to be a component of this name, like the first of its kind."""
        if name not in self.children:
            self.children[name] = ComponentProcess(self._topology.component(name), state="gone")
        child = self.children[name]
        child.comes_back |= child.alive and not child.wanted
        child.wanted = True
        return [self.start(child, now)] if child.state == "gone" else []

    def scale_down(self, child: ComponentProcess, now: float) -> list[Instruction]:
        """There is to be no such component any more."""
        if not child.wanted:
            return []
        child.wanted = child.comes_back = False
        if not child.alive:
            child.state = "gone"
            return []
        self.end_by(child, now)
        return [self.terminate(child)]

    def report(self, now: float) -> dict[str, dict[str, Any]]:
        """Name -> restarts, exit_code, alive_seconds: what stands in ``result.json``."""
        return {
            name: {
                "restarts": max(0, child.starts - 1),
                "exit_code": child.exit_code,
                "alive_seconds": round(child.alive_seconds(now), 3),
            }
            for name, child in self.children.items()
        }


def _back_off_seconds(losses: int) -> float:
    if losses <= 1:
        return 0.0
    return min(_BACK_OFF_SECONDS * 2.0 ** (losses - 2), _BACK_OFF_LIMIT_SECONDS)
