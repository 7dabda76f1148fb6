"""Sinks of metrics: their interface, their names, and a thread for those that may block."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from session.addons import load
from session.config import Config
from session.config.merge import leaves
from session.errors import MissingExtra, describe
from session.folder import RunFolder
from session.loggerplex.append_file import AppendFile
from session.nest import Array
from session.tensorplex.groups import Place

Record = Mapping[str, Any]
Arrays = Mapping[str, Array]
# Maximum points that wait for a slow sink; maximum of one call of its `add`.
_WAITING = 10_000
_AT_ONCE = 500
# Share of the grace period for the rest of the points and the result.
_END_SHARE = 0.8


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


@dataclass(frozen=True, slots=True)
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
        first = (self.config.get("run") or {}).get("first_started", 0.0)
        whole = f"{self.folder.path.absolute()}/{first}"
        return hashlib.sha256(whole.encode()).hexdigest()[:12]

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
        problem: cause of the first ones; empty without any.
    """

    files: Sequence[AppendFile] = ()
    dropped = 0
    problem = ""

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


class Kind(NamedTuple):
    """One name of `session_config.tensorplex.sinks`.

    Attributes:
        place: ``module:Class``.
        packages: packages that it imports; the extra with its name installs them.
    """

    place: str
    packages: tuple[str, ...] = ()


_ROOM = "session.tensorplex.sinks"
_KINDS = {
    "tensorboard": Kind(f"{_ROOM}.tensorboard:TensorBoard"),
    "csv": Kind(f"{_ROOM}.csv_file:CsvFile"),
    "wandb": Kind(f"{_ROOM}.weights_and_biases:WeightsAndBiases", ("wandb",)),
    "mlflow": Kind(f"{_ROOM}.ml_flow:MlFlow", ("mlflow", "sqlalchemy", "alembic")),
}


def check_installed(config: Config) -> None:
    """Raises MissingExtra if a sink of the experiment needs a package that is not here."""
    for name in config.session_config.tensorplex.sinks:
        if any(find_spec(package) is None for package in _KINDS[name].packages):
            raise MissingExtra.named(f"session_config.tensorplex.sinks: {name}", name)


def make_sinks(run: ShownRun) -> dict[str, Sink]:
    """Makes the sinks of a run, by name."""
    sinks: dict[str, Sink] = {}
    for name in run.config.session_config.tensorplex.sinks:
        make: Callable[[ShownRun], Sink] = load(_KINDS[name].place)
        sinks[name] = QueuedSink(make, run) if _KINDS[name].packages else make(run)
    return sinks


def end_sinks(run: ShownRun, sinks: Iterable[Sink]) -> None:
    """Gives the outcome to all sinks, and waits for them for a share of the grace period."""
    result = (run.folder.read_result() or {}) if run.folder.over else {}
    sinks = list(sinks)
    for sink in sinks:
        sink.end(result, sorted(run.folder.path.glob("*.png")))
    grace: float = run.config.session_config.launcher.grace_seconds
    deadline = time.monotonic() + _END_SHARE * grace
    for sink in sinks:
        sink.wait(deadline - time.monotonic())


class QueuedSink(Sink):
    """A sink in a thread of its own, behind a bounded queue: it delays and harms nothing else.

    The oldest points are dropped while it is slow, and those that it refuses by an error.

    Args:
        make: makes the sink; called in the thread, because packages may be slow to import.
        run: argument of ``make``.
    """

    def __init__(self, make: Callable[[ShownRun], Sink], run: ShownRun) -> None:
        self._points: deque[Point] = deque()
        self._outcome: tuple[Mapping[str, Any], Sequence[Path]] | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, args=(make, run), daemon=True)
        self._thread.start()

    def add(self, points: Sequence[Point]) -> None:
        """Queues points."""
        with self._changed:
            self._points.extend(points)
            full = len(self._points) - _WAITING
            for _ in range(full):
                self._points.popleft()
            self._changed.notify()
        if full > 0:
            self._drop(full, f"it takes too long, so that more than {_WAITING:,} points wait")

    def end(self, result: Mapping[str, Any], pictures: Sequence[Path]) -> None:
        """Ends the thread once it has taken all points."""
        with self._changed:
            self._outcome = (result, pictures)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Waits for the end of the thread."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            self._drop(len(self._points), "it did not take the last points in time")

    def _work(self, make: Callable[[ShownRun], Sink], run: ShownRun) -> None:
        sink: Sink | None = None
        try:
            sink = make(run)
        except Exception as error:  # noqa: BLE001 - another package, or the network behind it
            self._drop(0, describe(error))
        while points := self._take():
            try:
                if sink is None:
                    self._drop(len(points), self.problem)
                else:
                    sink.add(points)
            except Exception as error:  # noqa: BLE001 - as above
                self._drop(len(points), describe(error))
        try:
            if sink is not None and self._outcome is not None:
                sink.end(*self._outcome)
        except Exception as error:  # noqa: BLE001 - as above
            self._drop(0, describe(error))

    def _take(self) -> list[Point]:
        """Waits for points and returns them; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._points or self._outcome is not None)
            return [self._points.popleft() for _ in range(min(_AT_ONCE, len(self._points)))]

    def _drop(self, count: int, problem: str) -> None:
        with self._changed:
            self.dropped += count
            self.problem = self.problem or problem
