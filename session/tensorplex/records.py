"""Schemas of the records that Tensorplex accepts: one per kind of metric, and the heartbeat."""

from __future__ import annotations

import sys
from typing import Any

from session.errors import UsageError
from session.process.state import REPORTED
from session.tensorplex.groups import check_client_id, check_tag
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
