"""Supervision of the processes of a run as a state machine: events in, instructions out.

It uses no process, socket or clock. A run goes through these phases:

    running      processes that die are started again, within their budget
    ending       the learner was asked to end the run
    leaving      the learner has ended the run; agents end, then servers, then telemetry
    terminating  all processes were asked to end at once
    killing      all processes were killed
    over         no process is left
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from typing import Any

from session.addons import telemetry_kinds
from session.config.string_enum import StringEnum
from session.errors import FOLLOWS, UsageError
from session.launchers.instruction import Event, Failure, Instruction, Signal, Stop
from session.launchers.silence_and_restarts import (
    Deadlines,
    Loss,
    SupervisedComponent,
    SupervisedComponents,
    deaths_of,
)
from session.process.component import Topology, has_joined
from session.process.heartbeat import Beat, State

SCALABLE = ("agent", "gateway", "evaluator")
_SCALE_LIMIT = 1000


class Phase(StringEnum):
    """Phase of a run."""

    running = ()
    ending = ()
    leaving = ()
    terminating = ()
    killing = ()
    over = ()


class Supervision:
    """The processes of one run; methods take the time in seconds and return instructions.

    Args:
        topology: the components.
        deadlines: deadlines of the processes.
        restarts: False fails at the first death, whatever the restart rule of the component.
    """

    def __init__(self, topology: Topology, deadlines: Deadlines, *, restarts: bool = True) -> None:
        self.phase = Phase.running
        self.failure: Failure | None = None
        self.interrupted = False
        # Of the command that ends the run.
        self.reason = ""
        self._processes = SupervisedComponents(topology, deadlines, restarts=restarts)
        self._topology = topology
        self._deadlines = deadlines
        self._deadline = math.inf

    @property
    def children(self) -> dict[str, SupervisedComponent]:
        """Component name -> state of its process."""
        return self._processes.children

    @property
    def over(self) -> bool:
        """True once no process is left."""
        return self.phase is Phase.over

    def launch(self, now: float) -> list[Instruction]:
        """Starts all components."""
        return [self._processes.start(child, now) for child in self.children.values()]

    def adopt(self, starts: Mapping[str, int], now: float) -> list[Instruction]:
        """Takes over a run without a supervisor: keeps its processes, starts missing servers.

        Agents and evaluators that are missing have been scaled down.

        Args:
            starts: component -> number of its starts; includes those that have ended since, for
                which :meth:`on_exit` is called next.
            now: the time.
        """
        return self._processes.adopt(starts, now, leave=SCALABLE)

    def on_manual_restart(self, name: str, now: float) -> list[Instruction]:
        """Handles a process that a user has started for a component; the previous one has ended."""
        child = self.children[name]
        if child.alive:
            child.end(0, now)
        self._processes.start(child, now)
        child.wanted, child.comes_back = True, False
        instructions: list[Instruction] = [Event(name, "restart", "by hand")]
        if self.phase is Phase.terminating:
            instructions.append(self._processes.terminate(child))
        elif self.phase is Phase.killing:
            instructions.append(Signal(name, signal.SIGKILL))
        return instructions

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """Handles a heartbeat of a component."""
        self._processes.on_heartbeat(beat, now)

    def on_exit(
        self, name: str, exit_code: int, error: str, now: float, *, details: str = ""
    ) -> list[Instruction]:
        """Handles the end of a process.

        Args:
            name: name of its component.
            exit_code: exit code of the process; below 0 the signal that ended it.
            error: the cause, in one line.
            now: the time.
            details: output on standard error.
        """
        child = self.children[name]
        child.end(exit_code, now)
        # Once the run ends, no death is a loss any more: its work is done or given up.
        if self.phase is not Phase.running:
            return self._advance(now)
        asked, child.comes_back = child.comes_back, False
        if not child.wanted or (exit_code == 0 and not asked):
            return [Event(name, "ended"), *self._advance(now)]
        # The rank that ended first counts for the group.
        free = asked or exit_code == FOLLOWS
        return self._on_death(child, Loss(now, child.cause or error, details, free))

    def _on_death(self, child: SupervisedComponent, loss: Loss) -> list[Instruction]:
        lost = Event(child.name, "lost", loss.error)
        if self._processes.record_death(child, loss):
            return [*(() if loss.asked else (lost,)), *self._processes.start_due(loss.time)]
        if child.component.kind in telemetry_kinds():
            # A run goes on without metrics and logs.
            return [lost]
        # The later deaths often only follow from the first one.
        losses = deaths_of(child.losses)
        first, times = losses[0], len(losses)
        error = f"{first.error} (the first of {times} deaths)" if times > 1 else first.error
        return [lost, *self.fail(Failure(child.name, error, first.details), loss.time)]

    def tick(self, now: float) -> list[Instruction]:
        """Acts on what is due at this time."""
        self._processes.tick(now)
        # The later phases have deadlines of their own.
        if self.phase is Phase.running:
            self._processes.check_heartbeats(now)
        instructions = [*self._processes.start_due(now), *self._processes.kill_due(now)]
        if now >= self._deadline:
            end = self.kill if self.phase is Phase.terminating else self._terminate
            instructions += end(now)
        return [*instructions, *self._advance(now)]

    def stop(self, now: float, *, reason: str, interrupted: bool) -> list[Instruction]:
        """Begins the clean end of the run; does nothing if the run is ending already."""
        if self.phase is not Phase.running:
            return []
        self.interrupted, self.reason = interrupted, reason
        return [Event("", "stop", reason), *self._end(now, reason)]

    def fail(self, failure: Failure, now: float) -> list[Instruction]:
        """Ends the run after a failure; only the first failure is kept."""
        # Failures after the first one are mostly consequences of the end itself.
        if self.phase is not Phase.running:
            return []
        self.failure = failure
        event = Event(failure.component, "failed", failure.error)
        return [event, *self._end(now, f"{failure.component}: {failure.error}")]

    def kill(self, now: float) -> list[Instruction]:
        """Ends every process at once."""
        self._enter(Phase.killing)
        signals = [Signal(child.name, signal.SIGKILL) for child in self._processes.alive()]
        return [*signals, *self._advance(now)]

    def scale(self, kind: str, num: int, now: float) -> list[Instruction]:
        """Sets the number of agents or evaluators.

        Args:
            kind: prefix of their names, ``agent`` or ``eval``.
            num: new number of them.
            now: the time.

        Raises:
            UsageError: there is nothing of that kind to scale, or the run is ending.
        """
        self._refuse_unless_running()
        kinds = {
            each.name.removesuffix("-0"): each.kind
            for each in self._topology
            if each.kind in SCALABLE and each.name.endswith("-0")
        }
        if kind not in kinds:
            raise UsageError(f"cannot scale '{kind}'; this run has {', '.join(kinds) or 'none'}")
        if not 0 <= num <= _SCALE_LIMIT:
            raise UsageError(f"cannot scale {kind} to {num}; expected 0 to {_SCALE_LIMIT}")
        # The highest numbers go: the names are those of a run that was launched with this number.
        wanted = [f"{kind}-{index}" for index in range(num)]
        all_of_kind = [c for c in self.children.values() if c.component.kind == kinds[kind]]
        instructions: list[Instruction] = [Event("", "scale", f"{kind}: {num}")]
        for name in wanted:
            instructions += self._processes.want(name, now)
        for child in all_of_kind:
            if child.name not in wanted:
                instructions += self._processes.scale_down(child, now)
        return instructions

    def restart(self, name: str, now: float) -> list[Instruction]:
        """Ends one component and starts it again; a learner saves its state first.

        Raises:
            UsageError: there is no such component, or the run is ending.
        """
        self._refuse_unless_running()
        child = self.children.get(name)
        if child is None or not child.wanted:
            if has_joined(name):
                raise UsageError(
                    f"{name} is not on this machine: restart it on the one that joined"
                )
            raise UsageError(f"no component '{name}'; there are {', '.join(self.children)}")
        # It has ended, or waits for the end of its back-off, which a user need not wait for.
        if not child.alive:
            return [Event(name, "restart", "as asked"), self._processes.start(child, now)]
        child.comes_back = True
        self._processes.end_by(child, now)
        return [self._processes.terminate(child, returns=True)]

    def _refuse_unless_running(self) -> None:
        if self.phase is not Phase.running:
            raise UsageError("the run is ending")

    def report(self, now: float) -> dict[str, dict[str, Any]]:
        """Returns name -> restarts, exit_code, alive_seconds, as in ``result.json``."""
        return self._processes.report(now)

    def _enter(self, phase: Phase, deadline: float = math.inf) -> None:
        self.phase, self._deadline = phase, deadline
        # No component is started once the end has begun: it could do no work any more.
        self._processes.cancel_starts()

    def _end(self, now: float, reason: str) -> list[Instruction]:
        learner = self._processes.learner
        # Only the service of a running learner can save and write the result.
        if learner is None or learner.state not in (State.running, State.draining):
            return [*self._terminate(now), *self._advance(now)]
        self._enter(Phase.ending, now + self._deadlines.ending_seconds)
        if learner.state == State.draining:
            # It is ending the run already.
            return []
        return [Stop(reason, self.interrupted, failed=self.failure is not None)]

    def _terminate(self, now: float) -> list[Instruction]:
        self._enter(Phase.terminating, now + self._deadlines.patience_seconds)
        return [self._processes.terminate(child) for child in self._processes.alive()]

    def _advance(self, now: float) -> list[Instruction]:
        """Enters the next phase once the present one is complete."""
        if self._processes.gone:
            self._enter(Phase.over)
            return []
        learner = self._processes.learner
        if learner is not None and learner.state == State.gone:
            if self.phase in (Phase.running, Phase.ending) and learner.exit_code == 0:
                self._enter(Phase.leaving, now + self._deadlines.patience_seconds)
            elif self.phase is Phase.ending:
                return self._terminate(now)
        return self._leave_next() if self.phase is Phase.leaving else []

    def _leave_next(self) -> list[Instruction]:
        """Ends servers once agents and evaluators have ended by themselves; then telemetry."""
        kinds = {child.component.kind for child in self._processes.alive()}
        # Agents need replay and the parameter server until the last of their rows are acked.
        if kinds & set(SCALABLE):
            return []
        # Telemetry goes last: it still receives the last metrics and logs of the servers.
        servers = kinds - set(telemetry_kinds())
        return [
            self._processes.terminate(child)
            for child in self._processes.alive()
            if not child.terminating and (not servers or child.component.kind in servers)
        ]
