"""The messages of ``ps.requests``: what the parameter server takes, and what it answers."""

from __future__ import annotations

from session.hello import ANSWERS as WELCOME
from session.hello import HELLO
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
    Text,
)
from surreal_like.data.parameters import ABOUT, PARAMETERS

STATUS = MapOf(Text(200), Number(), 100)
# What a sender of experience says of its rows.
ACCOUNT = Fields(
    {
        **dict.fromkeys(("pushed", "inserted", "dropped", "unreceipted"), Count()),
        **dict.fromkeys(("env_steps", "episodes"), Count(most=STEPS_LIMIT)),
        "final": Flag(),
        # What its heartbeat says, for the learner, which may not share a folder with it.
        "status": Optional(STATUS),
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
    "farewell": Schema({"account": ACCOUNT}),
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
