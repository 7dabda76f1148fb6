"""All components of a run: starts, requests to end, restarts with back-off, kills."""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from session.launchers.deadlines import Deadlines
from session.launchers.instruction import Event, Instruction, Signal, Start
from session.launchers.restart_rule import restart_time
from session.launchers.supervised_component import Loss, SupervisedComponent
from session.process.component import Topology
from session.process.heartbeat import Beat
from session.process.state import State


class SupervisedComponents:
    """The components of one run and their processes; independent of the run's phases.

    Args:
        topology: the components.
        deadlines: of their processes.
        restarts: False fails at the first death, whatever the restart rule of the component.
    """

    def __init__(self, topology: Topology, deadlines: Deadlines, *, restarts: bool) -> None:
        self.children = {component.name: SupervisedComponent(component) for component in topology}
        self._topology = topology
        self._deadlines, self._restarts = deadlines, restarts

    @property
    def learner(self) -> SupervisedComponent | None:
        """The learner, which owns the run; None in a run without one."""
        return next((c for c in self.children.values() if c.component.kind == "learner"), None)

    @property
    def gone(self) -> bool:
        """True if no process is left and none will be started."""
        return all(child.state == State.gone for child in self.children.values())

    def alive(self) -> Iterator[SupervisedComponent]:
        """Yields the components that have a process."""
        return (child for child in self.children.values() if child.alive)

    def start(self, child: SupervisedComponent, now: float) -> Start:
        """Records a start and returns the instruction to carry it out."""
        child.start(now)
        return Start(child.name)

    def adopt(
        self, starts: Mapping[str, int], now: float, *, leave: Collection[str]
    ) -> list[Instruction]:
        """Continues components that an earlier supervisor has started; starts the others.

        Args:
            starts: component -> number of its starts.
            now: the time.
            leave: kinds of components that are not started if missing.
        """
        instructions: list[Instruction] = []
        for name in starts:
            if name not in self.children:
                self.children[name] = SupervisedComponent(self._topology.component(name))
        for child in self.children.values():
            if child.name in starts:
                child.start(now)
                child.starts = starts[child.name]
            elif child.component.kind in leave:
                child.wanted, child.state = False, State.gone
            else:
                instructions.append(self.start(child, now))
        return instructions

    def start_due(self, now: float) -> list[Instruction]:
        """Restarts the components whose back-off has passed."""
        due = [c for c in self.children.values() if c.state == State.waiting and now >= c.due]
        return [
            each for child in due for each in (Event(child.name, "restart"), self.start(child, now))
        ]

    def cancel_starts(self) -> None:
        """Cancels all pending starts."""
        for child in self.children.values():
            child.state = State.gone if child.state == State.waiting else child.state

    def terminate(self, child: SupervisedComponent, *, returns: bool = False) -> Signal:
        """Asks a component to end; a learner that does not return ends the run."""
        child.terminating = True
        # SIGINT makes the learner end the run, SIGTERM save and leave, to be started again.
        ends_run = child is self.learner and not returns
        return Signal(child.name, signal.SIGINT if ends_run else signal.SIGTERM)

    def end_by(self, child: SupervisedComponent, now: float) -> None:
        """Sets the time at which a component that was asked to end is killed."""
        child.kill_at = now + self._deadlines.patience_seconds

    def record_death(self, child: SupervisedComponent, loss: Loss) -> bool:
        """Records a death; returns False if the component must not be started again."""
        due = restart_time(child, loss, allowed=self._restarts)
        if due is None:
            return False
        child.state = State.waiting
        child.due = due
        return True

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """Handles a heartbeat of a component."""
        self.children[beat.name].on_heartbeat(beat, now)

    def check_heartbeats(self, now: float) -> None:
        """Marks components for a kill whose heartbeats have been missing for too long."""
        for child in self.alive():
            silent = child.silent_seconds(self._deadlines, now)
            # Once: the reported silence is that at which the kill was decided.
            if silent and not child.cause:
                child.cause = f"gave no sign of life for {silent:.0f} s while {child.state}"
                child.kill_at = now

    def kill_due(self, now: float) -> list[Instruction]:
        """Kills the processes whose deadline has passed."""
        due = [child for child in self.alive() if now >= child.kill_at]
        for child in due:
            child.kill_at = math.inf
        return [Signal(child.name, signal.SIGKILL) for child in due]

    def extend_deadlines(self, seconds: float) -> None:
        """Extends all deadlines by the time in which the supervisor itself was stopped."""
        for child in self.children.values():
            child.extend_deadline(seconds)

    def want(self, name: str, now: float) -> list[Instruction]:
        """Adds the component of this name, a copy of the first of its kind, and starts it."""
        if name not in self.children:
            self.children[name] = SupervisedComponent(
                self._topology.component(name), state=State.gone
            )
        child = self.children[name]
        # It is still leaving: two processes of one name would supersede each other.
        child.comes_back |= child.alive and not child.wanted
        child.wanted = True
        return [self.start(child, now)] if child.state == State.gone else []

    def scale_down(self, child: SupervisedComponent, now: float) -> list[Instruction]:
        """Ends a component for good."""
        if not child.wanted:
            return []
        child.wanted = child.comes_back = False
        if not child.alive:
            child.state = State.gone
            return []
        self.end_by(child, now)
        return [self.terminate(child)]

    def report(self, now: float) -> dict[str, dict[str, Any]]:
        """Returns name -> restarts, exit_code, alive_seconds, as in ``result.json``."""
        return {
            name: {
                "restarts": max(0, child.starts - 1),
                "exit_code": child.exit_code,
                "alive_seconds": round(child.alive_seconds(now), 3),
            }
            for name, child in self.children.items()
        }
