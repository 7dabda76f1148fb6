"""Sinks of metrics: their interface, and a thread for those that may block."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from session.addons import list_sinks, load
from session.config import Config
from session.config.merge import leaves
from session.errors import MissingExtra, describe
from session.folder import RunFolder
from session.hidden import hide_secrets
from session.launchers.registry import launcher_of
from session.loggerplex.append_file import AppendFile
from session.nest import Array
from session.process.periodic import double_pause
from session.tensorplex.groups import Place, counts_rows

Record = Mapping[str, Any]
Arrays = Mapping[str, Array]
# Maximum points that wait for a slow sink; maximum of one call of its `add`.
_WAITING = 10_000
_AT_ONCE = 500
# Share of what is left of the grace period, for the rest of the points and the result.
_END_SHARE = 0.8
# Calls of a sink with the same points, of which each fails.
_TRIES = 4
_LONGEST_PAUSE_SECONDS = 60.0


class Point(NamedTuple):
    """One value of a curve.

    Attributes:
        time: seconds since 1970, by the clock of its component.
        step: environment steps of the run; rows of its shard for curves of replay.
        place: component and tag.
        value: the number, which may be NaN or infinite.
    """

    time: float
    step: int
    place: Place
    value: float


@dataclass(frozen=True)
class ShownRun:
    """The run whose metrics a sink shows.

    Attributes:
        folder: the run folder.
        config: the resolved experiment.
        began: start of this process [s since 1970].
    """

    folder: RunFolder
    config: Config
    began: float

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.path.absolute().name

    @property
    def identity(self) -> str:
        """Text of 12 letters and digits that a resumed run shares with its earlier parts."""
        run = self.config.get("run") or {}
        if own := run.get("id"):
            return str(own)
        # A run that began before ids were kept.
        whole = f"{self.folder.path.absolute()}/{run.get('first_started', 0.0)}"
        return hashlib.sha256(whole.encode()).hexdigest()[:12]

    @cached_property
    def seconds_before(self) -> float:
        """Counted seconds of the earlier parts of a serial run, whose clock begins anew; else 0."""
        run = self.config.get("run") or {}
        counted = launcher_of(run.get("launcher", "")).one_thread
        return float(run.get("seconds_before", 0.0)) if counted else 0.0

    @property
    def parameters(self) -> dict[str, Any]:
        """Dotted key -> value of every setting of the experiment."""
        return {
            key: value
            for key, value in leaves(self.config).items()
            if key.partition(".")[0] not in ("recorded", "run")
        }

    @property
    def changed(self) -> dict[str, Any]:
        """Dotted key -> value of the settings that differ from the defaults."""
        return dict((self.config.get("recorded") or {}).get("changed") or {})


class Sink:
    """Receives the curves of a run; base class of each kind, which gets a ShownRun.

    Methods may raise any error. Those of a sink that needs a package of its own run in a thread
    and may block; the others must not.

    Attributes:
        files: files that the server flushes.
        dropped: number of points that were dropped.
        problem: first cause for which it was called again or dropped points; empty without any.
    """

    files: Sequence[AppendFile] = ()
    dropped = 0
    problem = ""
    _dropped_steps: tuple[int, int] | None = None

    @property
    def losses(self) -> str:
        """Number of points or records that are not stored so far, in words; empty if all are."""
        records = sum(file.lost + file.waiting for file in self.files)
        if records:
            return f"records lost: {records:,}"
        steps = self._dropped_steps
        span = f", of steps {steps[0]:,} to {steps[1]:,}" if steps else ""
        return f"points lost: {self.dropped:,}{span}" if self.dropped else ""

    def _drop(self, points: Sequence[Point], problem: str) -> None:
        """Counts points that are dropped, and keeps the first problem."""
        self.dropped += len(points)
        self.problem = self.problem or problem
        steps = [point.step for point in points if not counts_rows(point.place.component)]
        if steps:
            first, last = self._dropped_steps or (steps[0], steps[0])
            self._dropped_steps = min(first, *steps), max(last, *steps)

    def store(self, record: Record, arrays: Arrays, place: Callable[[str], Place]) -> None:
        """Stores one metric; by default its scalars, of which most kinds have none.

        Args:
            record: record of a client, of any kind but heartbeats.
            arrays: the arrays of the record.
            place: tag of the client -> place of its curve.
        """
        self.add(list(_points(record, place)))

    def add(self, points: Sequence[Point]) -> None:
        """Stores points of curves."""
        raise NotImplementedError

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Stores the outcome, as the last call.

        Args:
            result: ``result.json``; empty if the run is not over, so that it may go on.
            pictures: pictures in the run folder.
        """

    def wait(self, seconds: float) -> None:
        """Waits for the last call, at most so long [s]."""


def _points(record: Record, place: Callable[[str], Place]) -> Iterator[Point]:
    values = record.get("values", {})
    if record["kind"] == "scalar":
        values = {record["tag"]: record["value"]}
    for tag, value in values.items():
        yield Point(record["time"], record["step"], place(tag), float(value))


def check_installed(config: Config) -> None:
    """Raises MissingExtra if a sink of the experiment needs a package that is not here."""
    for name in config.session_config.tensorplex.sinks:
        if any(find_spec(package) is None for package in list_sinks()[name].packages):
            raise MissingExtra.named(f"session_config.tensorplex.sinks: {name}", name)


def make_sinks(run: ShownRun) -> dict[str, Sink]:
    """Makes the sinks of a run, by name."""
    sinks: dict[str, Sink] = {}
    for name in run.config.session_config.tensorplex.sinks:
        kind = list_sinks()[name]
        make: Callable[[ShownRun], Sink] = load(kind.place)
        sinks[name] = QueuedSink(make, run) if kind.packages else make(run)
    return sinks


def end_sinks(run: ShownRun, sinks: Iterable[Sink], seconds: float) -> None:
    """Gives the outcome to all sinks, and waits for them for a share of the time that is left."""
    result = (run.folder.read_result() or {}) if run.folder.over else {}
    sinks = list(sinks)
    for sink in sinks:
        sink.end(result, sorted(run.folder.path.glob("*.png")))
    deadline = time.monotonic() + _END_SHARE * seconds
    for sink in sinks:
        sink.wait(deadline - time.monotonic())


class QueuedSink(Sink):
    """A sink in a thread of its own, behind a bounded queue: it delays and harms nothing else.

    What fails is tried again after pauses that double; the end of the run shortens a pause to one
    last try. The oldest points are dropped while the sink is slow or away, and those that it has
    refused several times.

    Args:
        make: makes the sink; called in the thread, because packages may be slow to import.
        run: argument of ``make``.
        pause_seconds: first pause after an error [s].
    """

    def __init__(
        self, make: Callable[[ShownRun], Sink], run: ShownRun, *, pause_seconds: float = 0.5
    ) -> None:
        self._pause_seconds = pause_seconds
        self._points: deque[Point] = deque()
        # Taken from the queue by the thread, and not yet stored.
        self._held: Sequence[Point] = ()
        self._outcome: tuple[Mapping[str, Any], Sequence[Path]] | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, args=(make, run), daemon=True)
        self._thread.start()

    def add(self, points: Sequence[Point]) -> None:
        """Queues points."""
        with self._changed:
            self._points.extend(points)
            full = len(self._points) - _WAITING
            oldest = [self._points.popleft() for _ in range(full)]
            self._changed.notify()
        if oldest:
            self._drop(oldest, f"it takes too long, so that more than {_WAITING:,} points wait")

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Ends the thread once it has taken all points."""
        with self._changed:
            self._outcome = (result, pictures)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Waits for the end of the thread; points that are still queued then are dropped."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            with self._changed:
                left = [*self._held, *self._points]
                self._points.clear()
            self._drop(left, "it did not take the last points and the result in time")

    def _work(self, make: Callable[[ShownRun], Sink], run: ShownRun) -> None:
        made: list[Sink] = []
        self._try(lambda: made.append(make(run)), math.inf)
        while points := self._take():
            if not (made and self._try(partial(made[0].add, points), _TRIES)):
                with self._changed:
                    self._held = ()
                    self._drop(points, self.problem)
        if made and self._outcome is not None:
            self._try(partial(made[0].end, *self._outcome), _TRIES)

    def _drop(self, points: Sequence[Point], problem: str) -> None:
        with self._changed:
            super()._drop(points, problem)

    def _try(self, call: Callable[[], object], tries: float) -> bool:
        """Calls until there is no error; False if that was given up."""
        failures = 0
        while True:
            last = self._outcome is not None
            try:
                call()
                return True
            except Exception as error:  # noqa: BLE001 - another package, or the network behind it
                self._drop((), hide_secrets(describe(error)))
            failures += 1
            if last or failures >= tries:
                return False
            pause = double_pause(self._pause_seconds, failures - 1, _LONGEST_PAUSE_SECONDS)
            with self._changed:
                self._changed.wait_for(lambda: self._outcome is not None, pause)

    def _take(self) -> Sequence[Point]:
        """Waits for points and returns them; none at the end."""
        with self._changed:
            self._held = ()
            self._changed.wait_for(lambda: self._points or self._outcome is not None)
            count = min(_AT_ONCE, len(self._points))
            self._held = [self._points.popleft() for _ in range(count)]
            return self._held
