"""Messages between the learner of a trial and its tuning, at the endpoint ``tune.control``."""

from __future__ import annotations

from session.launchers.commands import STOP
from session.wire.schema import Count, Incarnation, Kinds, Name, Number, Plain, Schema, Text

CONTROL = "tune.control"
_STEPS = 8
_LINE_BYTES = 1 << 20

REPORTS: Kinds = {
    "report": Schema(
        {
            "trial": Name(),
            "incarnation": Incarnation(),
            "number": Count(),
            "step": Count(0, _STEPS),
            "time": Number(0.0),
            "line": Plain(),
        },
        header_bytes=_LINE_BYTES,
    ),
    "stop": STOP,
}
ANSWERS: Kinds = {
    **dict.fromkeys(("continue", "save", "load", "leave"), Schema()),
    "stop": Schema({"reason": Text()}),
}
