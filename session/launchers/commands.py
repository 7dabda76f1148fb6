"""Schemas of the commands to a run and of their replies."""

from __future__ import annotations

from session.wire.schema import (
    Count,
    Flag,
    Kinds,
    ListOf,
    Name,
    Nullable,
    Number,
    Optional,
    Plain,
    Schema,
    Text,
)

_COMPONENTS = 100_000
_STATUS_BYTES = 4 << 20

STOP = Schema({"reason": Text(), "interrupted": Flag()})

# Requests to the supervisor.
COMMANDS: Kinds = {
    "status": Schema(),
    "stop": STOP,
    "scale": Schema({"kind": Name(), "num": Count()}),
    "restart": Schema({"name": Name()}),
}
NOTED = Schema({"confirm": Optional(Flag()), "best": Optional(Nullable(Number()))})
# Replies of the supervisor, the learner and Tensorplex.
ANSWERS: Kinds = {
    "noted": NOTED,
    "stopping": Schema(),
    "status": Schema(
        {"components": Optional(ListOf(Plain(), _COMPONENTS))},
        others=Plain(),
        header_bytes=_STATUS_BYTES,
    ),
}
