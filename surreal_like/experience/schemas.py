"""The messages of a replay shard: experience and acks, requests and batches, priorities."""

from __future__ import annotations

import math

from session.wire.schema import (
    LARGE_HEADER_BYTES,
    SENDERS_LIMIT,
    ArrayOf,
    Bytes,
    Count,
    Counts,
    Fields,
    Flag,
    Incarnation,
    Kinds,
    ListOf,
    MapOf,
    Name,
    Nullable,
    Number,
    Optional,
    Row,
    Schema,
    SenderKey,
    Text,
    Type,
)
from surreal_like.experience.chunk import CHUNK, GOODBYE, MARKED_EPISODES, STAMPS
from surreal_like.experience.row_accounts import UNLEARNED

_ROWS = 1 << 20
_LAYOUT_BYTES = 1 << 16
_ARRAYS = 1000
_TOKEN_BYTES = 16
_SLAB = Row(Count(), Count(), Bytes(_TOKEN_BYTES), Count(), Count())
_AT_REPLAY = ("inserted", "asked", "sampled", "answered")
_WAY = Fields({name: Optional(Number()) for name in (*STAMPS, *_AT_REPLAY)})
_SEEN = ("rows", "base", "inserted", "dropped", "holes", "env_steps", "episodes")
# Fields on waiting requests and chunks of a shard.
_STATUS = ("requests_waiting", "needs_rows", "has_rows", "takes_no_rows")
_ACCOUNTED = ("agent_steps", "added", "restored", "rolled_back", "sampled", "replayed", "size")
_COUNTED = (
    "inserted",
    # Number that the next row gets.
    "end",
    "duplicates",
    "sampleable",
    "bytes",
    "evicted",
    "priorities_ignored",
)
# What the accounts of the run take of a shard.
_ACCOUNT: dict[str, Type] = {
    **dict.fromkeys(_ACCOUNTED, Count()),
    "unlearned": Fields({name: Optional(Count()) for name in UNLEARNED}),
    "goes_on": Flag(),
    # The incarnation of the shard from which on its senders are counted.
    "ledger": Count(),
    "senders": MapOf(
        SenderKey(),
        Fields(
            {
                # Not Count: negative if a sender reports fewer cut rows than were inserted.
                **dict.fromkeys(_SEEN, Number()),
                **dict.fromkeys(("goodbye", "guest", "closed"), Flag()),
                "place": Count(),
            }
        ),
        SENDERS_LIMIT,
    ),
}
COUNTS = Fields(
    {
        **_ACCOUNT,
        **dict.fromkeys(_COUNTED, Count()),
        # Of the shard that saved the snapshot which was restored.
        "before": MapOf(SenderKey(), Fields(_ACCOUNT), 1),
        "dropped": MapOf(Text(200), Count(), _ARRAYS),
        "mass": Number(0.0, math.inf),
        # Infinity where there is no row.
        "least": Number(0.0, math.inf),
        "takes_priorities": Flag(),
        "fenced": ListOf(Name(), SENDERS_LIMIT),
        "waiting_insert_seconds": Number(0.0),
        "waiting_sample_seconds": Number(0.0),
        "draining": Flag(),
        "status": Fields(dict.fromkeys(_STATUS, Number())),
        "finished": MARKED_EPISODES,
    }
)

EXPERIENCE: Kinds = {"chunk": CHUNK, "goodbye": GOODBYE}
ACKS: Kinds = {
    "acks": Schema(
        # incarnation, handled, inserted, dropped
        {"senders": MapOf(Name(), Row(Incarnation(), *[Count()] * 3), SENDERS_LIMIT)},
        header_bytes=LARGE_HEADER_BYTES,
    )
}
REQUESTS: Kinds = {
    "sample": Schema(
        {
            "batch_size": Count(1, _ROWS),
            "batches": Count(1, _ROWS),
            "version": Optional(Count()),
            "env_steps": Optional(Count()),
            "iteration": Optional(Count()),
            # Rows of older versions were acted before a trial took over another one.
            "since": Optional(Count()),
            # The smallest mass of a row in the other shards, infinity where there is none.
            "least": Optional(Number(0.0, math.inf)),
            "slab": Optional(_SLAB),
        }
    ),
    "counts": Schema(),
    "drain": Schema(),
    "fence": Schema({"names": ListOf(Name(), SENDERS_LIMIT)}, header_bytes=LARGE_HEADER_BYTES),
    "roll_back": Schema({"end": Count()}),
}
ANSWERS: Kinds = {
    "batch": Schema(
        {
            "batches": Count(1, _ROWS),
            "batch_size": Count(1, _ROWS),
            "counts": Nullable(COUNTS),
            "stamps": _WAY,
            # Taken by earlier processes of the shard, and by this one; of a queue: of the batch.
            "env_steps": Row(Count(), Count()),
            # In training iterations: True if no other batch of this one follows.
            "last": Optional(Flag()),
            # Of discounted returns since the start: count, mean, sum of squared distances from it.
            "returns": Optional(Row(Number(0.0), Number(), Number(0.0))),
            "placed": Optional(Row(Bytes(_LAYOUT_BYTES), Counts(_ARRAYS))),
            # Of a shard that is recorded: number of the next row, and of roll-backs before it.
            "place": Optional(Row(Count(), Count())),
            # The same, of a queue: rows that were inserted before each unroll of the batch.
            "drawn": Optional(Counts(_ROWS)),
        },
        arrays=None,
        header_bytes=LARGE_HEADER_BYTES,
    ),
    "counts": Schema({"counts": COUNTS}, header_bytes=LARGE_HEADER_BYTES),
}
PRIORITIES: Kinds = {
    "priorities": Schema(
        {"replay": Incarnation()},
        {
            "indices": ArrayOf("int64", shape=(None,)),
            "priorities": ArrayOf("float32", shape=(None,)),
        },
    )
}
