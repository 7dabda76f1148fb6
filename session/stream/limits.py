"""Bounds of connections from outside: newcomers and silence; no socket, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from session.stream.connection import Connection


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of the connections of a port.

    Args:
        greeting_seconds: time until a connection must be admitted, see :meth:`Connection.admit`.
        greeting_bytes: bytes that it may send before.
        greeting: connections that are not admitted yet; of more, the oldest one is ended.
        greeting_per_host: the same from one address.
        waiting_bytes: nothing is read from a client while more bytes wait to be sent to it.
        stalled_seconds: time without progress inside a message after which a connection is lost.
    """

    greeting_seconds: float = 5.0
    greeting_bytes: int = 8192
    greeting: int = 64
    greeting_per_host: int = 16
    waiting_bytes: int = 1 << 16
    stalled_seconds: float = 30.0


class Newcomers:
    """Connections of which no message has come, the oldest first.

    Args:
        limits: bounds.
    """

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._connections: dict[Connection, None] = {}
        self._hosts: Counter[str] = Counter()

    def is_full(self, host: str) -> bool:
        """Returns True if there is no place for another one of an address."""
        limits = self._limits
        full = len(self._connections) >= limits.greeting
        return full or self._hosts[host] >= limits.greeting_per_host

    def oldest(self, host: str, new: Container[Connection]) -> Connection | None:
        """Returns the connection whose place a new one of an address takes.

        A client says hello at once, so the oldest one is the last that will. To refuse new ones
        would let one client keep out all others of its address.

        Args:
            host: the address; if it has its share of places, the connection is one of its own.
            new: connections that were accepted just now stay: they could say nothing yet.
        """
        crowded = self._hosts[host] >= self._limits.greeting_per_host
        for each in self._connections:
            if each not in new and (each.host == host or not crowded):
                return each
        return None

    def add(self, connection: Connection) -> None:
        """Adds a new connection."""
        self._connections[connection] = None
        self._hosts[connection.host] += 1

    def discard(self, connection: Connection) -> None:
        """Counts a connection no longer as one that has to introduce itself."""
        if connection in self._connections:
            del self._connections[connection]
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def late(self, now: float) -> Iterator[Connection]:
        """Yields the connections whose time is up."""
        yield from [each for each in self._connections if now >= each.deadline]
