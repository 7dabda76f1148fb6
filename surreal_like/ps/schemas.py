"""Messages of ``ps.requests``: schemas of the requests and replies of the parameter server."""

from __future__ import annotations

from session.json_file import ANY
from session.process.handshake import ANSWERS as WELCOME
from session.process.handshake import HELLO
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    SENDERS_LIMIT,
    STEPS_LIMIT,
    ArrayOf,
    Count,
    Counts,
    Fields,
    Flag,
    Incarnation,
    Kinds,
    ListOf,
    MapOf,
    Name,
    Number,
    OneOf,
    Optional,
    Plain,
    Row,
    Schema,
    SenderKey,
    Text,
    Time,
    Type,
)
from surreal_like.data.parameters import ITEM_BYTES
from surreal_like.data.task import ENTRIES, NAME_CHARACTERS, is_setting

_TENSORS = 20_000
_DIMENSIONS = 8
_SETTINGS = 1_000
_SNAPSHOTS = 1_000
_SETTING = Type("a finite number, or a text that is not too long", is_setting)
_TASK = MapOf(Text(NAME_CHARACTERS), _SETTING, ENTRIES)

# Schemas of the metadata of a publication, and of the publication itself.
ABOUT = {
    "version": Count(),
    "incarnation": Incarnation(),
    "iteration": Count(),
    "info": Fields(
        {
            "time": Time(),
            "iteration": Count(),
            "message": Text(),
            "hash": Text(64),
            "env_steps": Count(),
            "final": Flag(),
            # Of a run that goes on later.
            "resumable": Optional(Flag()),
            # Time that evaluators have to play the last version.
            "final_seconds": Optional(Number(0.0)),
            # Of a trial that has taken over another one.
            "generation": Optional(Count()),
            # Dotted keys of the config: of any kind, from the learner.
            "settings": Optional(MapOf(Text(), Plain(ANY), most=_SETTINGS)),
            # Iterations of the snapshots that live.
            "snapshots": Optional(ListOf(Count(), _SNAPSHOTS)),
            # The run's newest task.
            "task": Optional(Fields({"number": Count(), "settings": _TASK})),
        }
    ),
}
PARAMETERS = Schema(
    {
        **ABOUT,
        "policy": Name(),
        "manifest": ListOf(
            Row(Text(512), OneOf(*ITEM_BYTES), Counts(_DIMENSIONS), Count()), _TENSORS
        ),
    },
    {"flat": ArrayOf("uint8", shape=(None,))},
    header_bytes=LARGE_HEADER_BYTES,
)

# No further fields here and below: the accounts of all senders must fit into one header.
_STATUS = Fields(
    dict.fromkeys(("version", "waits_for_acks", "waits_above_version"), Optional(Number()))
)
# Totals of a gateway, since its start.
CLIENT_TOTALS = ("sessions", "resumed", "refused", "episodes_cut", "unrecorded")
# Row counts that a sender of experience reports.
_ACCOUNT = {
    **dict.fromkeys(("pushed", "inserted", "dropped", "unacked"), Count()),
    **dict.fromkeys(("env_steps", "episodes"), Count(most=STEPS_LIMIT)),
    "final": Flag(),
    # For the learner, which may share no folder with the sender and so sees no heartbeat of it.
    "status": Optional(_STATUS),
    "env_restarts": Optional(Count()),
    "clients": Optional(Fields(dict.fromkeys(CLIENT_TOTALS, Count(most=STEPS_LIMIT)))),
}
ACCOUNT = Fields(_ACCOUNT)
# Newest numbers of the run for advice on agents: the time of their line of progress, and the shares
# of it in which the learner had no batch and replay took no rows.
LOAD = Fields(dict.fromkeys(("wall_seconds", "learner_waits", "senders_wait"), Number()))
REQUESTS: Kinds = {
    "hello": HELLO,
    "fetch": Schema(
        {
            "policy": Name(),
            "have": Row(Incarnation(), Count()),
            "account": Optional(ACCOUNT),
            "patient": Optional(Flag()),
        }
    ),
    "info": Schema({"policy": Name(), "account": Optional(ACCOUNT)}),
    "leave": Schema({"account": ACCOUNT, "policy": Name()}),
    "accounts": Schema({"load": Optional(LOAD)}),
}
ANSWERS: Kinds = {
    **WELCOME,
    "parameters": PARAMETERS,
    "not_modified": Schema(ABOUT),
    # A tuning says how many slots it wants from machines that join.
    "info": Schema({**ABOUT, "load": Optional(LOAD), "wanted_slots": Optional(Count())}),
    "empty": Schema(),
    "noted": Schema(),
    "accounts": Schema(
        # The parameter server adds which senders have joined.
        {
            "accounts": MapOf(
                SenderKey(), Fields({**_ACCOUNT, "guest": Optional(Flag())}), SENDERS_LIMIT
            )
        },
        header_bytes=LARGE_HEADER_BYTES,
    ),
}
PUBLICATIONS: Kinds = {"parameters": PARAMETERS}
