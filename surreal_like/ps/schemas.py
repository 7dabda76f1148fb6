"""Messages of ``ps.requests``: schemas of the requests and replies of the parameter server."""

from __future__ import annotations

from session.process.handshake import ANSWERS as WELCOME
from session.process.handshake import HELLO
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    SENDERS_LIMIT,
    STEPS_LIMIT,
    Count,
    Fields,
    Flag,
    Incarnation,
    Kinds,
    MapOf,
    Name,
    Number,
    Optional,
    Row,
    Schema,
    SenderKey,
)
from surreal_like.data.parameters import ABOUT, PARAMETERS

# No further fields here and below: the accounts of all senders must fit into one header.
_STATUS = Fields(
    dict.fromkeys(("version", "waits_for_acks", "waits_above_version"), Optional(Number()))
)
# Totals of a gateway, since its start.
CLIENT_TOTALS = ("sessions", "resumed", "refused", "episodes_cut", "unrecorded")
# Row counts that a sender of experience reports.
ACCOUNT = Fields(
    {
        **dict.fromkeys(("pushed", "inserted", "dropped", "unacked"), Count()),
        **dict.fromkeys(("env_steps", "episodes"), Count(most=STEPS_LIMIT)),
        "final": Flag(),
        # For the learner, which may share no folder with the sender and so sees no heartbeat of it.
        "status": Optional(_STATUS),
        "clients": Optional(Fields(dict.fromkeys(CLIENT_TOTALS, Count(most=STEPS_LIMIT)))),
    }
)
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
    "leave": Schema({"account": ACCOUNT}),
    "accounts": Schema(),
}
ANSWERS: Kinds = {
    **WELCOME,
    "parameters": PARAMETERS,
    "not_modified": Schema(ABOUT),
    "info": Schema(ABOUT),
    "empty": Schema(),
    "noted": Schema(),
    "accounts": Schema(
        {"accounts": MapOf(SenderKey(), ACCOUNT, SENDERS_LIMIT)},
        header_bytes=LARGE_HEADER_BYTES,
    ),
}
PUBLICATIONS: Kinds = {"parameters": PARAMETERS}
