"""What supervision knows of one component's process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from session.component import Component
from session.heartbeat import Beat

# A component keeps its deadlines by itself; whoever watches it waits a little longer.
MARGIN_SECONDS = 2.0
_ALIVE = ("starting", "running", "draining")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a process may take.

    Args:
        starting_seconds: from its start until its service runs.
        silent_seconds: between two beats of a running component.
        grace_seconds: from being asked to end until it has ended.
    """

    starting_seconds: float
    silent_seconds: float
    grace_seconds: float

    @property
    def patience_seconds(self) -> float:
        """How long to wait for the end of one that was asked to end."""
        return self.grace_seconds + min(MARGIN_SECONDS, self.grace_seconds)


@dataclass(frozen=True, slots=True)
class Loss:
    """One death.

    Args:
        time: when, on the clock that supervision is given.
        error: why, in one line.
        details: all that the process said on its standard error.
    """

    time: float
    error: str
    details: str


@dataclass(slots=True)
class ComponentProcess:
    """One component and its process, over all its starts.

    Args:
        component: what it is.
        state: ``waiting`` for its start, ``starting``, ``running``, ``draining`` or ``gone``.
        wanted: False once it has been scaled away.
        comes_back: its end was asked for, and so was another start.
        told: it has been asked to end.
        ran: its service has been running, at this start or an earlier one.
        starts: how often it was started.
        due: when a waiting one is started.
        started_at: when its latest process was started.
        kill_at: when it is killed if it still lives.
        cause: why it was killed by us.
        exit_code: of its latest process; below 0 the signal that ended it, None while it lives.
        losses: its deaths within the window that its restart rule looks at.
    """

    component: Component
    state: str = "waiting"
    wanted: bool = True
    comes_back: bool = False
    told: bool = False
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
        """True while there is a process, or one is about to be."""
        return self.state in _ALIVE

    def start(self, now: float) -> None:
        """A process is started now."""
        self.state = "starting"
        self.starts += 1
        self.told = False
        self.kill_at = math.inf
        self.cause = ""
        self.exit_code = None
        self.started_at = self._state_since = self._last_beat_at = now
        self._busy_seconds = 0.0
        self._last_beat = None

    def on_heartbeat(self, beat: Beat, now: float) -> None:
        """The process gave a sign of life; one that was heard before is no news."""
        if not self.alive or beat == self._last_beat:
            return
        self._last_beat, self._last_beat_at = beat, now
        self._busy_seconds = beat.busy_seconds
        self.ran |= beat.state == "running"
        state = beat.state if beat.state in _ALIVE else "draining"
        if state != self.state:
            self.state, self._state_since = state, now

    def end(self, exit_code: int, now: float) -> None:
        """The process has ended."""
        self._ended_seconds = self.alive_seconds(now)
        self.state = "gone"
        self.exit_code = exit_code
        self.kill_at = math.inf

    def extend_deadline(self, seconds: float) -> None:
        """Nobody listened for so long: that is no fault of the process."""
        self._last_beat_at += seconds
        self._state_since += seconds

    def last_loss(self, now: float) -> tuple[str, float] | None:
        """Why it died last, and how many seconds ago; None if it has not, within the window."""
        last = self.losses[-1] if self.losses else None
        if last is None or now - last.time > self.component.restart.window_seconds:
            return None
        return last.error, now - last.time

    def silent_seconds(self, limits: Limits, now: float) -> float:
        """How long it has been silent if that is too long, else 0."""
        allowed = {
            "starting": limits.starting_seconds + MARGIN_SECONDS,
            "running": limits.silent_seconds,
            "draining": limits.patience_seconds,
        }[self.state]
        # Beats of one that starts or drains are no excuse: both must come to an end.
        since = self._last_beat_at if self.state == "running" else self._state_since
        return now - since if now - since > allowed + self._busy_seconds else 0.0

    def alive_seconds(self, now: float) -> float:
        """Seconds that its processes have lived, together."""
        return self._ended_seconds + (now - self.started_at if self.alive else 0.0)
