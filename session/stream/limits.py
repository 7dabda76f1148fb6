"""Bounds of connections from outside: newcomers, wrong tokens, silence; no socket, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from session.stream.connection import Connection

_SHUT_OUT, _SHUT_OUT_SECONDS = 1024, 60.0


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of the connections of a port.

    Args:
        greeting_seconds: time until a connection must be admitted, see :meth:`Connection.admit`.
        greeting_bytes: bytes that it may send before.
        greeting: connections that are not admitted yet.
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
    """Connections that have not introduced themselves, and addresses that are shut out.

    Args:
        limits: bounds.
    """

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._connections: dict[Connection, None] = {}
        self._hosts: Counter[str] = Counter()
        self._shut_out: dict[str, float] = {}

    def refusal(self, host: str, now: float) -> str:
        """Returns the reason to close a new connection of an address; "" if there is none."""
        if now < self._shut_out.get(host, 0.0):
            return "closed out after many wrong tokens"
        limits = self._limits
        full = len(self._connections) >= limits.greeting
        if full or self._hosts[host] >= limits.greeting_per_host:
            return "too many connections that have not introduced themselves"
        return ""

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

    def shut_out(self, host: str, now: float) -> None:
        """Has all new connections of an address refused for a minute."""
        if len(self._shut_out) < _SHUT_OUT:
            self._shut_out[host] = now + _SHUT_OUT_SECONDS

    def forget(self, now: float) -> None:
        """Forgets the addresses whose minute is over."""
        self._shut_out = {host: until for host, until in self._shut_out.items() if now < until}
