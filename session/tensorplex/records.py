"""Schemas of the records that Tensorplex accepts: one per kind of metric, tables and heartbeats."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session.errors import UsageError
from session.process.heartbeat import REPORTED, State, starting_seconds
from session.tensorplex.groups import check_client_id, check_tag
from session.wire import Identity
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

_ENDED = (State.done, State.failed)


@dataclass(slots=True)
class _Row:
    state: State
    incarnation: int
    beat_at: float
    pid: int
    rss_bytes: int
    status: dict[str, float]


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
            self._rows[sender.name] = row

    def rows(self, now: float) -> list[dict[str, Any]]:
        """Returns the table as plain data, sorted by name.

        Each row has ``name``, ``state``, ``incarnation``, ``age_seconds`` since its heartbeat,
        ``rss_bytes``, ``pid`` and ``status``. The state of a silent component is ``silent``, unless
        its last state was ``done`` or ``failed``.
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
        }


_TEXT_LIMIT = (1 << 16) + 64
_STATUS_LIMIT = 100
_VALUES_LIMIT = 10_000
_STEP_LIMIT = 1 << 63


def _is_client(value: Any) -> bool:
    try:
        check_client_id(value)
    except UsageError:
        return False
    return True


def _is_tag(value: Any) -> bool:
    try:
        check_tag(value)
    except UsageError:
        return False
    return True


def _metric(fields: dict[str, Type], arrays: dict[str, Type] | None = None) -> Schema:
    return Schema({**_ABOUT, **fields}, arrays or {})


_TAG = Type("a tag of printable characters", _is_tag)
# Any double, including NaN and infinity, which curves may show.
_VALUE = Number(-sys.float_info.max, sys.float_info.max, finite=False)
_ABOUT = {
    "kind": Text(16),
    "id": Type("<group>/<id>", _is_client),
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
