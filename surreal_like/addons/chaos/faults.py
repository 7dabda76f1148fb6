"""Faults for the components of a run on this machine: signals, a full disk."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.status import process_lives
from session.process.component import Topology
from session.process.heartbeat import Beat, State, read_beats

KILL, TERM, STOP, DISK = "kill", "term", "stop", "disk-full"
_SIGNALS = {KILL: signal.SIGKILL, TERM: signal.SIGTERM, STOP: signal.SIGSTOP}
# Time for which a process is stopped, if it is not killed for its silence before [s].
STOP_SECONDS = 20.0
# Time for which the disk is full [s].
FULL_SECONDS = 3.0
# Most free space that is filled.
_MOST_FREE_BYTES = 1 << 30
_FILL = "chaos.fill"


@dataclass(frozen=True, slots=True)
class Plan:
    """A fault that comes again and again.

    Args:
        what: kill, term, stop or disk-full.
        kind: kind of component that it hits; empty for disk-full.
        mean_seconds: mean of the exponential times between two of them.
    """

    what: str
    kind: str
    mean_seconds: float


@dataclass(slots=True)
class Fault:
    """One fault.

    Args:
        plan: plan that it belongs to.
        name: component that it has hit; empty for disk-full.
        began: time at which it came, by the clock of the faults [s].
        incarnation: incarnation of the component then.
        recovered_seconds: time until the component ran again, None if it has not yet.
        pid: process that it has hit; 0 for disk-full.
        went_on_at: monotonic time at which that process may go on after it was stopped [s].
        survived: True if it has gone on.
        cut_off: True if the run came to its own end before.
    """

    plan: Plan
    name: str
    began: float
    incarnation: int = 0
    recovered_seconds: float | None = None
    cut_off: bool = False
    pid: int = 0
    went_on_at: float | None = None
    survived: bool = False


class Faults:
    """Hits components of a run at random times, and notes when they are back.

    Args:
        folder: the run folder; its processes must be on this machine.
        plans: the faults.
        seed: seeds times and choices.
        clock: seconds that only rise.

    Attributes:
        happened: all faults so far, in order.

    Raises:
        UsageError: the run has no component of a kind, or the disk is too large to be filled.
    """

    def __init__(
        self,
        folder: RunFolder,
        plans: Sequence[Plan],
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._clock = folder, clock
        self._random = np.random.default_rng(seed)
        self._topology = Topology.load(folder.topology)
        self.happened: list[Fault] = []
        check_kinds(plans, self._topology)
        if any(plan.what == DISK for plan in plans):
            _require_small(folder.path)
        self._plans = tuple(plans)
        self._due: dict[Plan, float] = {}

    def begin(self) -> None:
        """Draws the first times; from now on :meth:`tick` hits components."""
        self._due = {plan: self._next(plan) for plan in self._plans}

    def end(self) -> None:
        """Hits nothing more; :meth:`tick` still notes what is back."""
        self._due.clear()

    def cut_off(self) -> None:
        """Notes that the run is over: what is away does not come back."""
        for each in self.happened:
            each.cut_off = each.recovered_seconds is None

    def _next(self, plan: Plan) -> float:
        return self._clock() + float(self._random.exponential(plan.mean_seconds))

    @property
    def away(self) -> set[str]:
        """Names of the components that are not back yet."""
        return {each.name for each in self.happened if each.recovered_seconds is None}

    def tick(self) -> None:
        """Notes which components are back; does what is due."""
        beats = read_beats(self._folder.alive)
        self._look(beats)
        for plan, due in [*self._due.items()]:
            if self._clock() >= due and self._hit(plan, beats):
                self._due[plan] = self._next(plan)

    def all_back(self) -> bool:
        """Does :meth:`tick`; returns True if no component is away then."""
        self.tick()
        return not self.away

    def _look(self, beats: dict[str, Beat]) -> None:
        for fault in self.happened:
            if fault.recovered_seconds is not None:
                continue
            seconds = self._clock() - fault.began
            if fault.plan.what == DISK:
                if seconds >= FULL_SECONDS:
                    self.free_disk()
                    fault.recovered_seconds = seconds
                continue
            beat = beats.get(fault.name)
            if beat is not None and self._is_back(fault, beat, seconds):
                fault.recovered_seconds = seconds

    def _is_back(self, fault: Fault, beat: Beat, seconds: float) -> bool:
        """Returns True if a component runs again; lets a process go on that was stopped."""
        # The next process of a component that resumes has the same incarnation.
        if beat.incarnation > fault.incarnation or beat.pid != fault.pid:
            return beat.state == State.running
        if fault.plan.what != STOP or seconds < STOP_SECONDS or not process_lives(beat):
            return False
        if fault.went_on_at is None:
            fault.went_on_at = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(fault.pid, signal.SIGCONT)
        fault.survived = beat.state == State.running and beat.now > fault.went_on_at
        return fault.survived

    def _hit(self, plan: Plan, beats: dict[str, Beat]) -> bool:
        """Returns False if nothing can be hit now: it is tried again at the next call."""
        if plan.what == DISK:
            if "" in self.away:
                return False
            self.happened.append(Fault(plan, "", self._clock()))
            _fill(self._folder.path / _FILL)
            return True
        there = [
            beat
            for name, beat in sorted(beats.items())
            if self._topology.knows(name)
            and self._topology.component(name).kind == plan.kind
            and self._can_hit(beat)
        ]
        return bool(there) and self._signal(plan, there[int(self._random.integers(len(there)))])

    def strike(self, what: str, name: str) -> bool:
        """Hits one component now; :meth:`tick` notes when it is back.

        Returns False if it does not run now.
        """
        beat = read_beats(self._folder.alive).get(name)
        if beat is None or not self._can_hit(beat):
            return False
        return self._signal(Plan(what, self._topology.component(name).kind, 0.0), beat)

    def _can_hit(self, beat: Beat) -> bool:
        away = beat.name in self.away
        return not away and beat.state == State.running and process_lives(beat)

    def _signal(self, plan: Plan, beat: Beat) -> bool:
        try:
            os.kill(beat.pid, _SIGNALS[plan.what])
        except ProcessLookupError:
            return False
        fault = Fault(plan, beat.name, self._clock(), beat.incarnation, pid=beat.pid)
        self.happened.append(fault)
        return True

    def free_disk(self) -> None:
        """Removes what fills the disk, if anything does."""
        (self._folder.path / _FILL).unlink(missing_ok=True)

    def of(self, plan: Plan) -> Iterator[Fault]:
        """Yields the faults of one plan."""
        return (each for each in self.happened if each.plan is plan)


def check_kinds(plans: Iterable[Plan], topology: Topology) -> None:
    """Rejects faults for components that a run does not have.

    Raises:
        UsageError: names the kind, and those that there are.
    """
    kinds = {each.kind for each in topology}
    for plan in plans:
        if plan.kind and plan.kind not in kinds:
            raise UsageError(
                f"the run has no component of kind '{plan.kind}'; it has {', '.join(sorted(kinds))}"
            )


def _require_small(path: Path) -> None:
    space = os.statvfs(path)
    free = space.f_bavail * space.f_frsize
    if free > _MOST_FREE_BYTES:
        raise UsageError(
            f"--disk-full fills the file system of {path}, which has {free / 1e9:.0f} GB free: "
            "that would hit other programs; put the run on a small one, such as a tmpfs of 64 MB"
        )


def _fill(path: Path) -> None:
    """Writes until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
