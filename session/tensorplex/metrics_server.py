"""Tensorplex: gives metrics of all components to the sinks and keeps the component table."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from session.errors import UsageError
from session.launchers.supervisor_state_machine import SCALABLE
from session.loggerplex.append_file import AppendFile
from session.loggerplex.telemetry_server import Bound, Collector
from session.nest import Array
from session.process.component import SILENT_SECONDS, has_joined, is_client
from session.process.context import Context
from session.process.heartbeat import REPORTED, State, starting_seconds
from session.show.wanted_agents import Advice, want_gateways
from session.tensorplex.groups import (
    Place,
    check_client_id,
    check_tag,
    is_renamed,
    name_of,
    place,
)
from session.tensorplex.prometheus import Page, Samples, exposition, metrics_host
from session.tensorplex.sinks.sink import ShownRun, end_sinks, make_sinks
from session.wire import Identity, Message
from session.wire.one_way_sockets import Socket
from session.wire.schema import (
    ArrayOf,
    Count,
    Incarnation,
    Kinds,
    MapOf,
    Number,
    OneOf,
    Schema,
    Text,
    Time,
    Type,
)

_TEXT_LIMIT = (1 << 16) + 64
_STATUS_LIMIT = 100
_VALUES_LIMIT = 10_000
_STEP_LIMIT = 1 << 63
_REQUESTS_PER_TICK = 100
# Maximum clients that join or are added, besides the planned ones; maximum tags per client.
_CLIENTS = 1000
_TAGS = 2000
# Maximum scripts; separate, so that scripts do not use up the places of agents.
_SCRIPTS = 200
# Maximum events about metrics whose curves have another name.
_RENAMED = 10

_ENDED = (State.done, State.failed)


@dataclass(slots=True)
class _Row:
    state: State
    incarnation: int
    beat_at: float
    pid: int
    rss_bytes: int
    status: dict[str, float]
    restarts: int = 0


class ComponentTable:
    """Last heartbeat of every component, and its age by the server's clock.

    Args:
        timeout_seconds: a component without a heartbeat is ``silent`` after this time [s]; see
            :func:`session.process.heartbeat.starting_seconds`.
    """

    def __init__(self, *, timeout_seconds: float) -> None:
        self._rows: dict[str, _Row] = {}
        self._patience_seconds = {State.starting: starting_seconds(timeout_seconds)}
        self._timeout_seconds = timeout_seconds

    def beat(self, sender: Identity, beat: Mapping[str, Any], now: float) -> None:
        """Stores one heartbeat; ignores it if a newer incarnation is known.

        Args:
            sender: identity of the sender.
            beat: the record.
            now: arrival time by the server's own clock [s], because clocks of machines differ.
        """
        row = _Row(
            state=State(beat["state"]),
            incarnation=beat["incarnation"],
            beat_at=now,
            pid=beat["pid"],
            rss_bytes=beat["rss_bytes"],
            status={key: float(value) for key, value in beat["status"].items()},
        )
        known = self._rows.get(sender.name)
        if known is None or known.incarnation <= row.incarnation:
            if known is not None:
                row.restarts = known.restarts + (known.incarnation < row.incarnation)
            self._rows[sender.name] = row

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Returns the table as plain data, sorted by name.

        Each row has ``name``, ``state``, ``incarnation``, ``age_seconds`` since its heartbeat,
        ``rss_bytes``, ``pid``, ``status``, and the ``restarts`` since this table was made. The
        state of a silent component is ``silent``, unless its last state was ``done`` or ``failed``.
        """
        return [self._plain(name, self._rows[name], now) for name in sorted(self._rows)]

    def _plain(self, name: str, row: _Row, now: float) -> dict[str, Any]:
        age_seconds = now - row.beat_at
        patience = self._patience_seconds.get(row.state, self._timeout_seconds)
        silent = row.state not in _ENDED and age_seconds > patience
        return {
            "name": name,
            "state": State.silent if silent else row.state,
            "incarnation": row.incarnation,
            "age_seconds": age_seconds,
            "rss_bytes": row.rss_bytes,
            "pid": row.pid,
            "status": dict(row.status),
            "restarts": row.restarts,
        }


def _passes(check: Callable[[Any], object], value: Any) -> bool:
    try:
        check(value)
    except UsageError:
        return False
    return True


def _metric(fields: dict[str, Type], arrays: dict[str, Type] | None = None) -> Schema:
    return Schema({**_ABOUT, **fields}, arrays or {})


_TAG = Type("a tag of printable characters", partial(_passes, check_tag))
# Any double, including NaN and infinity, which curves may show.
_VALUE = Number(-sys.float_info.max, sys.float_info.max, finite=False)
_ABOUT = {
    "kind": Text(16),
    "id": Type("<group>/<id>", partial(_passes, check_client_id)),
    "step": Count(-_STEP_LIMIT, _STEP_LIMIT - 1),
    "time": Time(),
}
_MOMENTS = dict.fromkeys(("min", "max", "sum", "sum_squares"), _VALUE)

RECORDS: Kinds = {
    "scalar": _metric({"tag": _TAG, "value": _VALUE}),
    "scalars": _metric({"values": MapOf(_TAG, _VALUE, _VALUES_LIMIT)}),
    "text": _metric({"tag": _TAG, "text": Text(_TEXT_LIMIT)}),
    "histogram": _metric(
        {"tag": _TAG, "num": Count(), **_MOMENTS},
        {"counts": ArrayOf("int64", shape=(None,)), "edges": ArrayOf("float64", shape=(None,))},
    ),
    "image": _metric({"tag": _TAG}, {"image": ArrayOf("uint8", shape=(None, None, None))}),
    "video": _metric(
        {"tag": _TAG, "fps": Number(1e-6, 1e6)},
        {"frames": ArrayOf("uint8", shape=(None, None, None, None))},
    ),
    "heartbeat": Schema(
        {
            "kind": Text(16),
            "time": Time(),
            "state": OneOf(*map(str, REPORTED)),
            "incarnation": Incarnation(),
            "pid": Count(),
            "rss_bytes": Count(),
            "status": MapOf(Text(200), _VALUE, _STATUS_LIMIT),
        }
    ),
}
REQUESTS: Kinds = {"status": Schema()}


@dataclass(slots=True)
class _Curves:
    """Curves of one client: tag -> place, and all places, of which none belongs to two tags."""

    places: dict[str, Place] = field(default_factory=dict)
    taken: set[Place] = field(default_factory=set)


def _has_left(row: Mapping[str, Any]) -> bool:
    """Returns True for an agent that has signed off, or whose name the next machine may take."""
    state, age_seconds = State(row["state"]), float(row["age_seconds"])
    return state is State.done or (state is State.silent and age_seconds > SILENT_SECONDS)


class Tensorplex(Collector):
    """Gives metrics to the sinks of a run and answers ``status`` requests.

    Raises:
        UsageError: the component has no run folder, or its port is in use.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, "tensorplex", RECORDS)
        if context.folder is None:
            raise UsageError("tensorplex writes into the run folder: start it with --folder")
        session = context.config.session_config
        self._run = ShownRun(context.folder, context.config, context.clock.time())
        self._sinks = make_sinks(self._run)
        self._reported: set[str] = set()
        # Agent of a joined machine -> incarnation that was reported as lost.
        self._lost: dict[str, int] = {}
        self._table = ComponentTable(timeout_seconds=session.heartbeat.timeout)
        self._requests = context.wire.router("tensorplex.requests", REQUESTS)
        self._newest: dict[tuple[str, str], float] = {}
        self._steps: dict[str, int] = {}
        self._curves: dict[str, _Curves] = {}
        self._clients: Counter[bool] = Counter()
        self._renamed = 0
        self._drained_at = math.inf
        port: int = session.tensorplex.prometheus_port
        self._gateways: Advice | None = None
        self._page = Page(port, metrics_host(context.config)) if port else None
        if self._page is not None:
            context.event("prometheus", self._page.address)

    def tick(self) -> bool:
        """Stores records and answers requests."""
        return super().tick() | self._answer()

    def store(
        self, sender: Identity, record: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> None:
        """Stores one metric or heartbeat."""
        if record["kind"] == "heartbeat":
            self._table.beat(sender, record, self._context.clock.now())
            return
        client_id, step = record["id"], record["step"]
        curves = self._curves_of(client_id)
        record, left_out = self._within_bounds(client_id, curves, record)
        if self._run.seconds_before:
            record = {**record, "time": record["time"] + self._run.seconds_before}
        for sink in self._sinks.values():
            sink.store(record, arrays, curves.places.__getitem__)
        self._steps[sender.name] = step
        if self._page is not None:
            self._remember(client_id, record)
        if left_out:
            raise Bound(left_out)

    def component_of(self, record: Mapping[str, Any]) -> str:
        """Name of the component in a metric: ``agent-3`` for the id ``agent/3``."""
        return name_of(str(record.get("id", "")))

    def on_dropped(self, sender: Identity, count: int, message: Message) -> None:
        """Adds a curve of a component's dropped records, at its last reported step."""
        record = {
            "kind": "scalar",
            "id": "session/dropped_records",
            "tag": sender.name,
            "value": count,
            "step": self._steps.get(sender.name, 0),
            # Not that of a record: there may be none, or none that fits.
            "time": self._context.clock.time(),
        }
        self.store(sender, record, {})

    def drain(self) -> None:
        """Receives the messages still in the sockets, then is done."""
        super().drain()
        # Real time: the counted clock of a serial run does not wait for a thread.
        self._drained_at = min(self._drained_at, time.monotonic())

    def write(self) -> None:
        """Writes the files of the sinks, updates the Prometheus text, reports failing sinks."""
        self.flush(self._files)
        self._report_sinks()
        self._report_joined()
        if self._page is not None:
            self._page.show(self._exposition())

    def wait_on(self) -> list[Socket]:
        """The sockets of records and requests."""
        return [*super().wait_on(), self._requests]

    def status(self) -> dict[str, float]:
        """Adds lost events, unwritten bytes, and points that sinks have dropped."""
        return super().status() | {
            "dropped_points": float(sum(sink.dropped for sink in self._sinks.values())),
            "lost_events": float(sum(file.lost for file in self._files)),
            "unwritten_bytes": float(sum(file.held_bytes for file in self._files)),
        }

    def close(self) -> None:
        """Ends the sinks, writes everything, reports what is lost and releases the port."""
        grace: float = self._context.config.session_config.launcher.grace_seconds
        drained_seconds = max(0.0, time.monotonic() - self._drained_at)
        end_sinks(self._run, self._sinks.values(), grace - drained_seconds)
        super().close()
        for name, sink in self._sinks.items():
            if sink.losses:
                self._context.event("not_written", f"sink {name}: {sink.losses}", sink=name)
        if self._page is not None:
            self._page.close()

    @property
    def _files(self) -> list[AppendFile]:
        return [file for sink in self._sinks.values() for file in sink.files]

    def _report_sinks(self) -> None:
        """Reports the first problem of each sink, once."""
        for name, sink in self._sinks.items():
            if sink.problem and name not in self._reported:
                self._reported.add(name)
                self._context.event("not_written", f"sink {name}: {sink.problem}", sink=name)

    def _report_joined(self) -> None:
        """Reports each agent of a joined machine that has fallen silent, once for each process."""
        for row in self._rows():
            name, life = row["name"], row["incarnation"]
            if row["state"] == State.silent and has_joined(name) and self._lost.get(name) != life:
                self._lost[name] = life
                seconds = f"{row['age_seconds']:.0f} s"
                self._context.event("joined_lost", f"{name} has sent no heartbeat for {seconds}")

    def _exposition(self) -> str:
        rows, context = self._rows(), self._context
        over = any(row["status"].get("run_over") for row in rows if row["name"] == "learner")
        core = {c.name for c in context.topology.components if c.kind not in SCALABLE}
        for row in rows:
            # One whose end was planned, although the run needs it.
            needed = row["state"] == State.done and row["name"] in core and not over
            if needed or (has_joined(row["name"]) and _has_left(row)):
                row["state"] = State.gone
        absent = sorted(core - {row["name"] for row in rows})
        joined = Counter(str(row["state"]) for row in rows if has_joined(row["name"]))
        living = [row["status"] for row in rows if row["state"] == State.running]
        sessions = [status["sessions"] for status in living if "sessions" in status]
        places = (context.config.session_config.get("gateway") or {}).get("max_clients", 0)
        self._gateways = want_gateways(sessions, places, context.clock.now(), self._gateways)
        more: dict[str, Samples] = {
            "component_up": [({"component": c}, 0.0) for c in absent],
            "joined": [({"state": state}, number) for state, number in sorted(joined.items())],
        }
        if self._gateways is not None:
            more["wanted"] = [({"what": "gateways"}, self._gateways.number)]
        with suppress(OSError):
            disk = shutil.disk_usage(self._run.folder.path)
            more |= {"disk_size_bytes": [({}, disk.total)], "disk_free_bytes": [({}, disk.free)]}
        return exposition(rows, self._newest, more)

    def _answer(self) -> bool:
        answered = 0
        while answered < _REQUESTS_PER_TICK and (request := self._requests.receive()) is not None:
            answered += 1
            self._requests.reply(request, "status", {"components": self._rows()})
        return answered > 0

    def _rows(self) -> list[dict[str, Any]]:
        return self._table.rows(self._context.clock.now())

    def _curves_of(self, client_id: str) -> _Curves:
        """Returns the curves of a client.

        Raises:
            Bound: there are too many clients.
            UsageError: the id belongs to no group.
        """
        if client_id not in self._curves:
            place(client_id, "any")
            script = is_client(name_of(client_id))
            most = _SCRIPTS if script else _CLIENTS + len(self._context.topology.components)
            if self._clients[script] >= most:
                raise Bound(f"{most} clients have reported metrics already")
            self._clients[script] += 1
            self._curves[client_id] = _Curves()
        return self._curves[client_id]

    def _within_bounds(
        self, client_id: str, curves: _Curves, record: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], str]:
        """Returns a record without the metrics that get no curve, and the reason for these.

        Raises:
            Bound: nothing of it is left.
        """
        several = record["kind"] == "scalars"
        given = record["values"] if several else (record["tag"],)
        new = (tag for tag in given if tag not in curves.places)
        reasons = [reason for tag in new if (reason := self._refuse(client_id, curves, tag))]
        if not reasons:
            return record, ""
        if not several:
            raise Bound(reasons[0])
        kept = {tag: value for tag, value in record["values"].items() if tag in curves.places}
        return {**record, "values": kept}, reasons[0]

    def _refuse(self, client_id: str, curves: _Curves, tag: str) -> str:
        """Makes the curve of a new metric, or returns the reason why it gets none."""
        if len(curves.places) >= _TAGS:
            return f"'{client_id}' reports more than {_TAGS} different metrics"
        found = place(client_id, tag)
        if found in curves.taken:
            return f"metric {tag!r} of '{client_id}': another one has its curve '{found.tag}'"
        curves.places[tag] = found
        curves.taken.add(found)
        if is_renamed(tag, found) and self._renamed < _RENAMED:
            self._renamed += 1
            self._context.event("renamed", f"metric {tag!r} has the curve '{found.title}'")
        return ""

    def _remember(self, client_id: str, record: Mapping[str, Any]) -> None:
        if record["kind"] == "scalar":
            self._newest[client_id, record["tag"]] = float(record["value"])
        elif record["kind"] == "scalars":
            for tag, value in record["values"].items():
                self._newest[client_id, tag] = float(value)
