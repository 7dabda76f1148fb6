"""All components of a run: when one counts as silent, is killed, and is started again.

A component that misses its heartbeats, or does not end in time, is killed by SIGKILL; one that died
is started again, with back-off, until its restart rule gives it up.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from session.errors import FOLLOWS, HOPELESS, START_AGAIN, UsageError
from session.launchers.instruction import Event, Instruction, Signal, Start
from session.process.component import Component, Topology
from session.process.heartbeat import ALIVE, Beat, State, starting_seconds
from session.process.periodic import double_pause

# Components enforce their own deadlines; the supervisor waits a little longer.
_MARGIN_SECONDS = 2.0
_ABSENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of a process.

    Args:
        silent_seconds: time between two heartbeats of a running component. A start may take
            longer: :func:`session.process.heartbeat.starting_seconds`.
        grace_seconds: time from a request to end until the process has ended.
        back_off_seconds: pause before its second restart; it doubles with each further one.
        back_off_limit_seconds: maximum of that pause.
        final_seconds: time in which evaluators play the last parameters of a run.
    """

    silent_seconds: float
    grace_seconds: float
    back_off_seconds: float = 0.25
    back_off_limit_seconds: float = 5.0
    final_seconds: float = 0.0

    @property
    def patience_seconds(self) -> float:
        """Seconds from a request to end until the process is killed."""
        return self.grace_seconds + min(_MARGIN_SECONDS, self.grace_seconds)

    @property
    def ending_seconds(self) -> float:
        """Seconds from the request to end the run until its learner is killed."""
        return self.patience_seconds + self.final_seconds

    def pause_seconds(self, losses: int) -> float:
        """Returns the time from a death, of so many, to the next start."""
        # The first restart is immediate: most deaths are single ones, and agents wait meanwhile.
        if losses <= 1:
            return 0.0
        return double_pause(self.back_off_seconds, losses - 2, self.back_off_limit_seconds)

    def of(self, state: State) -> float:
        """Returns the longest time in a state of a living process, in seconds.

        In ``running`` it is the longest time between two heartbeats.
        """
        return {
            State.starting: starting_seconds(self.silent_seconds) + _MARGIN_SECONDS,
            State.running: self.silent_seconds,
            State.draining: self.patience_seconds,
        }[state]


def restart_time(
    child: SupervisedComponent, loss: Loss, deadlines: Deadlines, *, allowed: bool
) -> float | None:
    """Records a death; returns the time of the next start, None if there must be none.

    A component is given up after `max_restarts` deaths within the window of its restart rule, and
    at once if a new start cannot help: its command or config is wrong, or it said so itself. A
    restart that a user has asked for is never refused, and counts for the pause only.

    Args:
        child: the component.
        loss: death.
        deadlines: deadlines of its process.
        allowed: False: nothing is started again in this run.
    """
    limits = child.component.restart
    recent = [each for each in child.losses if loss.time - each.time < limits.window_seconds]
    child.losses = [*recent, loss]
    wrong = child.exit_code == UsageError.exit_code and not child.ran
    hopeless = wrong or child.exit_code == HOPELESS
    signalled = child.exit_code == START_AGAIN and not loss.asked
    refused = hopeless or not (allowed or signalled)
    if not loss.asked and (refused or len(deaths_of(recent)) >= limits.max_restarts):
        return None
    # The same signal may be meant for the launcher, too, which notices it a moment later.
    return loss.time + deadlines.pause_seconds(len(child.losses) + signalled)


@dataclass(frozen=True, slots=True)
class Loss:
    """One end of a process after which it is started again.

    Args:
        time: time on the clock of the supervision [s].
        error: the cause, in one line.
        details: output of the process on its standard error.
        asked: a user has asked for the restart, or another rank of its group has ended; else it is
            an unexpected end.
    """

    time: float
    error: str
    details: str
    asked: bool = False


def deaths_of(losses: Iterable[Loss]) -> list[Loss]:
    """Returns the unexpected ends."""
    return [each for each in losses if not each.asked]


@dataclass(slots=True)
class SupervisedComponent:
    """One component and its process, over all its starts.

    Args:
        component: description of the component.
        state: ``waiting`` for its start, ``starting``, ``running``, ``draining`` or ``gone``.
        wanted: False once it has been scaled away.
        comes_back: a new start was requested while its process still ends.
        terminating: True if its process was asked to end.
        ran: True if its service has been running, at this start or an earlier one.
        starts: number of starts.
        due: time of the next start, for one that waits.
        started_at: start time of its latest process.
        kill_at: time of SIGKILL if it still lives.
        cause: reason for which the supervisor kills it.
        exit_code: exit code of the latest process; below 0 a signal, None while it lives.
        losses: ends within the window of its restart rule, after which it was started again.
    """

    component: Component
    state: State = State.waiting
    wanted: bool = True
    comes_back: bool = False
    terminating: bool = False
    ran: bool = False
    starts: int = 0
    due: float = 0.0
    started_at: float = 0.0
    kill_at: float = math.inf
    cause: str = ""
    exit_code: int | None = None
    losses: list[Loss] = field(default_factory=list)
    _state_since: float = 0.0
    _last_beat_at: float = 0.0
    _busy_seconds: float = 0.0
    _last_beat: Beat | None = None
    _ended_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the component."""
        return self.component.name

    @property
    def alive(self) -> bool:
        """True while it has a process."""
        return self.state in ALIVE

    @property
    def shown_exit_code(self) -> int | None:
        """Exit code of its latest process; 0 of one that left because the launcher asked."""
        return 0 if self.terminating and self.exit_code == START_AGAIN else self.exit_code

    def start(self, now: float) -> None:
        """Records that a process is started now."""
        self.state = State.starting
        self.starts += 1
        self.terminating = False
        self.kill_at = math.inf
        self.cause = ""
        self.exit_code = None
        self.started_at = self._state_since = self._last_beat_at = now
        self._busy_seconds = 0.0
        self._last_beat = None

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """Handles a heartbeat; one that was read before is ignored."""
        # The file of a process that hangs stays: the same heartbeat again is no sign of life.
        if not self.alive or beat == self._last_beat:
            return
        self._last_beat, self._last_beat_at = beat, now
        self._busy_seconds = beat.busy_seconds
        self.ran |= beat.state == State.running
        # `done` and `failed` are reported by a process that still has to exit.
        state = beat.state if beat.state in ALIVE else State.draining
        if state != self.state:
            self.state, self._state_since = state, now

    def end(self, exit_code: int, now: float) -> None:
        """Records the end of the process."""
        self._ended_seconds = self.alive_seconds(now)
        self.state = State.gone
        self.exit_code = exit_code
        self.kill_at = math.inf

    def extend_deadline(self, seconds: float) -> None:
        """Extends the deadlines by the time in which the supervisor itself was stopped."""
        self._last_beat_at += seconds
        self._state_since += seconds

    def last_loss(self, now: float) -> tuple[str, float] | None:
        """Returns error and age in seconds of its latest death; None without one in the window."""
        # Only while it counts for the restart rule: older deaths do not explain the present state.
        last = next(reversed(deaths_of(self.losses)), None)
        if last is None or now - last.time > self.component.restart.window_seconds:
            return None
        return last.error, now - last.time

    def silent_seconds(self, deadlines: Deadlines, now: float) -> float:
        """Returns the seconds since its last heartbeat or state change if too many, else 0."""
        allowed = deadlines.of(self.state) + self._busy_seconds
        # Heartbeats do not extend starting and draining: both must come to an end.
        since = self._last_beat_at if self.state == State.running else self._state_since
        return now - since if now - since > allowed else 0.0

    def alive_seconds(self, now: float) -> float:
        """Returns the total lifetime of its processes, in seconds."""
        return self._ended_seconds + (now - self.started_at if self.alive else 0.0)


class SupervisedComponents:
    """The components of one run and their processes; independent of the run's phases.

    Args:
        topology: the components.
        deadlines: deadlines of the processes.
        restarts: False fails at the first death, whatever the restart rule of the component.
    """

    def __init__(self, topology: Topology, deadlines: Deadlines, *, restarts: bool) -> None:
        self.children = {component.name: SupervisedComponent(component) for component in topology}
        self._topology = topology
        self._deadlines, self._restarts = deadlines, restarts
        self._ticked_at = math.inf

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
        instructions: list[Instruction] = []
        for child in self.children.values():
            if child.state == State.waiting and now >= child.due:
                why = "as asked" if child.losses[-1].asked else ""
                why = "with its group" if child.exit_code == FOLLOWS else why
                event = Event(child.name, "restart", why)
                instructions += [event, self.start(child, now)]
        return instructions

    def cancel_starts(self) -> None:
        """Cancels all pending starts."""
        for child in self.children.values():
            child.state = State.gone if child.state == State.waiting else child.state

    def terminate(self, child: SupervisedComponent, *, returns: bool = False) -> Signal:
        """Asks a component to end; a learner that does not return ends the run."""
        child.terminating = True
        # SIGINT makes the learner end the run. A component that SIGTERM ends while the run goes on
        # asks to be started again; the supervisor knows that it has asked for its end.
        ends_run = child is self.learner and not returns
        return Signal(child.name, signal.SIGINT if ends_run else signal.SIGTERM)

    def end_by(self, child: SupervisedComponent, now: float) -> None:
        """Sets the time at which a component that was asked to end is killed."""
        child.kill_at = now + self._deadlines.patience_seconds

    def record_death(self, child: SupervisedComponent, loss: Loss) -> bool:
        """Records a death; returns False if the component must not be started again."""
        due = restart_time(child, loss, self._deadlines, allowed=self._restarts)
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

    def kill_due(self, now: float) -> list[Signal]:
        """Kills the processes whose deadline has passed."""
        due = [child for child in self.alive() if now >= child.kill_at]
        for child in due:
            child.kill_at = math.inf
        return [Signal(child.name, signal.SIGKILL) for child in due]

    def tick(self, now: float) -> None:
        """Extends all deadlines by the time in which the supervisor itself was stopped."""
        absent, self._ticked_at = now - self._ticked_at, now
        # The heartbeats that were missed then are no fault of the components.
        for child in self.children.values() if absent > _ABSENCE_SECONDS else ():
            child.extend_deadline(absent)

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
                "exit_code": child.shown_exit_code,
                "alive_seconds": round(child.alive_seconds(now), 3),
            }
            for name, child in self.children.items()
        }
