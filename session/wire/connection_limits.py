"""Limits of the open connections of one bound socket, and selection of those to close.

libzmq has no such limits: the backlog bounds only connections that wait to be accepted, the maximum
of sockets counts sockets, and a peer may send a message of any size before it has proved its key.
The kernel's byte counts of each connection show whether the peer has proved its key.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

_CONNECTIONS = 4096

T = TypeVar("T")


class Bucket:
    """A token bucket: ``burst`` tokens at once, ``rate`` tokens per second on average.

    Args:
        rate: tokens added per second.
        burst: maximum number of tokens.
        now: present time [s], on any clock.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Takes tokens; returns False and takes none if there are too few."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True


class _Connection(Generic[T]):
    __slots__ = ("bucket", "dropped", "waiting")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.waiting: deque[T] = deque()
        self.dropped = 0


class Turns(Generic[T]):
    """Limits the rate of items of each connection; late items wait, served round robin.

    Args:
        keep: maximum number of waiting items per connection; more are dropped.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._known: OrderedDict[str, _Connection[T]] = OrderedDict()
        self._late: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def put(self, connection: str, item: T, rate: float, now: float) -> T | None:
        """Returns the item if it may be served at once; None if it waits, or was dropped.

        Args:
            connection: connection of the item.
            item: the received item.
            rate: maximum items per second of the connection, also the maximum burst.
            now: present time [s].
        """
        known = self._known.get(connection)
        if known is None:
            known = self._known[connection] = _Connection(Bucket(rate, rate, now))
            self._forget()
        if not known.waiting and known.bucket.take(now):
            known.dropped = 0
            return item
        if len(known.waiting) < self._keep:
            if not known.waiting:
                self._late.append(connection)
            known.waiting.append(item)
        else:
            known.dropped += 1
        return None

    def next(self, now: float) -> T | None:
        """Returns a waiting item whose connection may be served now, round robin; else None."""
        for _ in range(len(self._late)):
            connection = self._late.popleft()
            known = self._known.get(connection)
            if known is None:
                continue
            item = known.waiting.popleft() if known.bucket.take(now) else None
            if known.waiting:
                self._late.append(connection)
            if item is not None:
                return item
        return None

    def dropped(self, connection: str) -> int:
        """Number of dropped items of a connection since one was last served at once."""
        known = self._known.get(connection)
        return 0 if known is None else known.dropped

    def _forget(self) -> None:
        """Bounds the table; descriptors are reused, so only many keys can reach the bound."""
        if len(self._known) > _CONNECTIONS:
            self._known.popitem(last=False)


# The greeting (64) and welcome (170) go to every peer, more only after it has proved its key.
_UNPROVED_SENT_BYTES = 240
# More than four times the size of a greeting, a hello and a proof of the key.
_UNPROVED_RECEIVED_BYTES = 4096
# struct tcp_info of Linux 4.1 and newer: tcpi_bytes_acked, tcpi_bytes_received.
_TCP_INFO = struct.Struct("120xQQ")


class OpenConnection(NamedTuple):
    """One open connection: libzmq's descriptor and the remote host."""

    descriptor: int
    source: str


class ByteCounts(NamedTuple):
    """Bytes sent and received over a connection so far."""

    sent: int
    received: int


class OpenConnections:
    """The open connections of one bound socket.

    Args:
        endpoint: name of the endpoint.
        port: port of the bound socket.
        limit: maximum number of open connections.

    Attributes:
        failure: reason of the refusal of the connection that ends next.
    """

    def __init__(self, endpoint: str, port: int, limit: int) -> None:
        self.endpoint = endpoint
        self.limit = limit
        self.failure = ""
        self.port = port
        self._open: dict[int, OpenConnection] = {}
        self._unproved: dict[int, OpenConnection] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unproved(self) -> int:
        """Number of connections not yet known to have proved their key."""
        return len(self._unproved)

    def add(self, descriptor: int) -> OpenConnection | None:
        """Adds an accepted connection; returns the one to close if there are too many.

        Peers without a key that only hold connections open must not block others: the oldest
        connection without a proved key is closed; if there is none, the new one.
        """
        newest = OpenConnection(descriptor, _peer(descriptor))
        self._open[descriptor] = self._unproved[descriptor] = newest
        if len(self._open) <= self.limit:
            return None
        excess = next((connection for connection, _ in self._unproved_connections()), newest)
        self.remove(excess.descriptor)
        return excess

    def remove(self, descriptor: int) -> OpenConnection | None:
        """Removes an ended connection; None if it was already removed to be closed."""
        self._unproved.pop(descriptor, None)
        return self._open.pop(descriptor, None)

    def remove_oversized(self) -> list[OpenConnection]:
        """Removes and returns connections that have sent too much before proving their key."""
        going = [
            connection
            for connection, counts in self._unproved_connections()
            if counts.received > _UNPROVED_RECEIVED_BYTES
        ]
        for connection in going:
            self.remove(connection.descriptor)
        return going

    def _unproved_connections(self) -> Iterator[tuple[OpenConnection, ByteCounts]]:
        """Yields connections that have not proved their key, the oldest first."""
        for descriptor, connection in list(self._unproved.items()):
            counts = byte_counts(descriptor, self.port)
            if counts.sent > _UNPROVED_SENT_BYTES:
                del self._unproved[descriptor]
            else:
                yield connection, counts


def _peer(descriptor: int) -> str:
    """Remote host of a connection, empty if it has already ended."""
    # dup: the end of this socket object must not close libzmq's descriptor.
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        return str(connection.getpeername()[0])
    return ""


def byte_counts(descriptor: int, port: int) -> ByteCounts:
    """Byte counts of a connection; zeros if the descriptor has been reused for another file."""
    with suppress(OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getsockname()[1] == port:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            return ByteCounts(*_TCP_INFO.unpack(info))
    return ByteCounts(0, 0)


def end_connection(descriptor: int, port: int) -> None:
    """Shuts down a connection of libzmq, which then closes its descriptor.

    If the descriptor now belongs to another peer of this port, that peer reconnects.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.getsockname()[1] == port:
            connection.shutdown(socket.SHUT_RDWR)
