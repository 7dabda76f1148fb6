"""One component and the state of its process, as supervision sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from session.launchers.deadlines import Deadlines
from session.process.component import Component
from session.process.heartbeat import Beat
from session.process.state import ALIVE, State


@dataclass(frozen=True, slots=True)
class Loss:
    """One unexpected end of a process.

    Args:
        time: in seconds, on the clock of the supervision.
        error: the cause, in one line.
        details: output of the process on its standard error.
    """

    time: float
    error: str
    details: str


@dataclass(slots=True)
class SupervisedComponent:
    """One component and its process, over all its starts.

    Args:
        component: its description.
        state: ``waiting`` for its start, ``starting``, ``running``, ``draining`` or ``gone``.
        wanted: False once it has been scaled away.
        comes_back: a new start was requested while its process still ends.
        terminating: its process was asked to end.
        ran: its service has been running, at this start or an earlier one.
        starts: number of starts.
        due: time of the next start, for one that waits.
        started_at: start time of its latest process.
        kill_at: time of SIGKILL if it still lives.
        cause: reason for which the supervisor kills it.
        exit_code: of its latest process; below 0 the signal that ended it, None while it lives.
        losses: its deaths within the window of its restart rule.
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
        last = self.losses[-1] if self.losses else None
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
