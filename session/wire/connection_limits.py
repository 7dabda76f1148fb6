"""The open connections of one bound socket, and which of them have to go.

libzmq has no limits of its own here: a backlog bounds only what waits to be accepted, the maximum
of sockets counts sockets, and before a peer has proved its key it may send a message as large as
any. The kernel tells how much each connection has carried, and that tells who has proved it.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

# Our greeting (64) and welcome (170) go to everybody, more only to who has proved its key.
_UNPROVED_SENT_BYTES = 240
# A greeting, a hello and a proof of the key are less than a fourth of this.
_UNPROVED_RECEIVED_BYTES = 4096
# struct tcp_info of Linux 4.1 and newer: tcpi_bytes_acked, tcpi_bytes_received.
_CARRIED = struct.Struct("120xQQ")


class Visitor(NamedTuple):
    """One open connection: libzmq's descriptor of it, and from which host it comes."""

    descriptor: int
    source: str


class Carried(NamedTuple):
    """What a connection has carried so far [bytes]."""

    sent: int
    received: int


class Visitors:
    """The open connections of one bound socket.

    Args:
        endpoint: its name.
        port: to which it is bound.
        limit: connections at once.

    Attributes:
        failure: why the connection that ends next was refused.
    """

    def __init__(self, endpoint: str, port: int, limit: int) -> None:
        self.endpoint = endpoint
        self.limit = limit
        self.failure = ""
        self.port = port
        self._open: dict[int, Visitor] = {}
        self._unproved: dict[int, Visitor] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unproved(self) -> int:
        """Connections of which it is not known yet that they have proved their key."""
        return len(self._unproved)

    def come(self, descriptor: int) -> Visitor | None:
        """A connection has been accepted; the one that has to go for it, if there are too many.

        Strangers that only hold connections open must not keep others out: the oldest one goes
        that has not proved its key, and only without such the new one.
        """
        newest = Visitor(descriptor, _peer(descriptor))
        self._open[descriptor] = self._unproved[descriptor] = newest
        if len(self._open) <= self.limit:
            return None
        goes = next((visitor for visitor, _ in self._strangers()), newest)
        self.leave(goes.descriptor)
        return goes

    def leave(self, descriptor: int) -> Visitor | None:
        """A connection has ended; None if it was one that had to go."""
        self._unproved.pop(descriptor, None)
        return self._open.pop(descriptor, None)

    def chatterers(self) -> list[Visitor]:
        """Those that have to go, for they send much before they have proved their key."""
        going = [
            visitor
            for visitor, carried in self._strangers()
            if carried.received > _UNPROVED_RECEIVED_BYTES
        ]
        for visitor in going:
            self.leave(visitor.descriptor)
        return going

    def _strangers(self) -> Iterator[tuple[Visitor, Carried]]:
        """Yields those that have not proved their key, the oldest first."""
        for descriptor, visitor in list(self._unproved.items()):
            carried = look_at(descriptor, self.port)
            if carried.sent > _UNPROVED_SENT_BYTES:
                del self._unproved[descriptor]
            else:
                yield visitor, carried


def _peer(descriptor: int) -> str:
    """Host at the other end of a connection, empty if it has gone already."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        return str(connection.getpeername()[0])
    return ""


def look_at(descriptor: int, port: int) -> Carried:
    """What a connection has carried; nothing, if by now the descriptor is of something else."""
    with suppress(OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getsockname()[1] == port:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _CARRIED.size)
            return Carried(*_CARRIED.unpack(info))
    return Carried(0, 0)


def end_connection(descriptor: int, port: int) -> None:
    """Ends a connection of libzmq, which then closes it; the descriptor stays libzmq's.

    Should it be another peer's by now, that one connects again.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getsockname()[1] == port:
            connection.shutdown(socket.SHUT_RDWR)
