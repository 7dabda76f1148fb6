"""Messages to clients, in the encoding of each connection."""

from __future__ import annotations

from session.stream.connection import Connection
from session.stream.protocols import Encoding
from surreal_like.gateway.messages import Fields, Refusal
from surreal_like.gateway.payloads import encode
from surreal_like.gateway.sessions import Busy, Member

_RETRY_SECONDS = 1.0


def send(connection: Connection, fields: Fields) -> None:
    """Sends a message."""
    connection.send(encode(fields, connection.encoding or Encoding.msgpack))


def send_to(member: Member, fields: Fields) -> None:
    """Sends a message to a session; dropped while it has no connection."""
    connection = member.connection
    if connection is not None:
        connection.send(encode(fields, connection.encoding or Encoding.msgpack))


def send_wait(member: Member, reason: str) -> None:
    """Sends the reason why an answer is still owed; another one while an evaluation is awaited."""
    reason = "evaluation" if member.held else reason
    send_to(member, {"kind": "wait", "seq": member.session.seq, "reason": reason})


def send_unavailable(member: Member) -> None:
    """Sends that an answer takes too long; it is still owed."""
    text = "no answer in time: send the request again, with the same seq"
    send_to(member, Refusal("unavailable", text, member.session.seq).fields())


def send_busy(connection: Connection, busy: Busy) -> None:
    """Sends a newcomer away for a while."""
    fields = {"reason": busy.reason, "retry_after_seconds": busy.retry_after_seconds}
    send(connection, {"kind": "busy", **fields})
    connection.close()


def send_refusal(connection: Connection, refusal: Refusal) -> None:
    """Sends an error, and closes the connection."""
    send(connection, {**refusal.fields(), "fatal": True})
    connection.close()


def send_goodbye(connection: Connection, reason: str, *, reconnect: bool = False) -> None:
    """Sends a client away.

    Args:
        connection: is closed.
        reason: of the end.
        reconnect: True if the client should come back.
    """
    fields = {
        "kind": "goodbye",
        "reason": reason,
        "reconnect": reconnect,
        "retry_after_seconds": _RETRY_SECONDS if reconnect else 0.0,
    }
    send(connection, fields)
    connection.close()
