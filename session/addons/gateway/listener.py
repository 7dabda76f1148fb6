"""TCP port for connections from outside: accepts, reads and writes, within its limits."""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from functools import partial

from session.addons.gateway.connection import Connection, Event
from session.addons.gateway.protocols import ProtocolSettings, StreamLimits
from session.errors import ConfigError, DecodeError, OversizeError
from session.process.clock import Clock


class PendingConnections:
    """Connections of which no message has come, the oldest first.

    Args:
        limits: Bounds of the connections.
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

    def find_oldest(self, host: str, new: Container[Connection]) -> Connection | None:
        """Returns the connection whose place a new one of an address takes.

        A client says hello at once, so the oldest one is the last that will. To refuse new ones
        would let one client keep out all others of its address.

        Args:
            host: Address; if it has its share of places, the connection is one of its own.
            new: Connections that were accepted just now; they stay, as they could send nothing yet.
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

    def find_late(self, now: float) -> Iterator[Connection]:
        """Yields the connections whose time is up."""
        yield from [each for each in self._connections if now >= each.deadline]


_LIMITS = StreamLimits()
_READ_BYTES = 1 << 16
_BACKLOG = 256
# Few: those that wait longer lose no time, and those that are accepted can say hello first.
_ACCEPTS_AT_ONCE = 16
_CHORES_SECONDS = 0.25
# After the last answer the rest of what the client sends is read and dropped for so long: to close
# at once would reset the connection, and the client would not see the answer.
_LAST_WORDS_SECONDS = 1.0
_ENDING = 256
# Plain ints, read once: a lookup in the module costs as much as the test.
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Listener:
    """Accepts connections on a port, and exchanges payloads with them; never blocks.

    :func:`session.wire.socket_state.poll` waits for it and for sockets of the wire.

    Args:
        host, port: Address to bind to; port 0: any free one.
        protocols: Rules of the protocols of all connections.
        clock: Clock for deadlines.
        limits: Bounds of the connections.
        on_refused: Function called with the address and the reason of each refused connection.
        tls: Settings of the TLS server; None: no TLS.

    Attributes:
        port: Bound port.
        refused: Number of connections that were closed by a bound, or because of TLS.

    Raises:
        ConfigError: the port cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        protocols: ProtocolSettings,
        clock: Clock,
        limits: StreamLimits = _LIMITS,
        on_refused: Callable[[str, str], object] = lambda host, reason: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.protocols, self.limits, self.tls = protocols, limits, tls
        self.refused = 0
        self._on_refused = on_refused
        self.pending = self.looked = False
        self.silent = True
        self._now = clock.now
        try:
            self._server = socket.create_server((host, port), backlog=_BACKLOG)
        except OSError as error:
            reason = str(error.strerror or error).lower()
            raise ConfigError(f"port {port} of {host} cannot be bound: {reason}") from None
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._server, _IN)
        self.descriptor = self._epoll.fileno()
        self._accepts_at = 0.0
        self._chores_at = 0.0
        self._connections: dict[int, Connection] = {}
        self._pending = PendingConnections(limits)
        self._ending: deque[Connection] = deque()
        self._lost: list[Connection] = []
        self._waiting: list[Connection] = []

    def __len__(self) -> int:
        return len(self._connections)

    def look(self) -> None:
        """Notes that something has happened; called by the poll."""
        self.pending = True

    def poll(self) -> list[Event]:
        """Reads and writes what is possible now; returns what has happened, in order."""
        self.pending = self.looked = False
        now = self._now()
        events: list[Event] = []
        # Those that have sent many messages go on where they were; meanwhile nothing is read.
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.closed:
                self._collect(each, each.pop_payloads, events)
        accepts = False
        for descriptor, mask in self._epoll.poll(0):
            connection = self._connections.get(descriptor)
            if connection is None:
                accepts = True
                continue
            if mask & _OUT:
                self._flush(connection)
            reads = connection.ending or not (connection.closed or connection.waits)
            if mask != _OUT and reads:
                self._read(connection, now, events)
        if accepts:
            self._accept(now)
        if now >= self._chores_at:
            self._chores_at = now + _CHORES_SECONDS
            self._check_deadlines(now)
        if self._lost:
            events += map(Event, self._lost)
            self._lost = []
        return events

    def close(self) -> None:
        """Closes the port and all connections, after a last try to write."""
        self._server.close()
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._epoll.close()

    # -- accepting

    def _accept(self, now: float) -> None:
        new: set[Connection] = set()
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                end, address = self._server.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # Without this pause the port would stay readable, and the loop would spin.
                    self._epoll.modify(self._server, 0)
                    self._accepts_at = now + 1.0
                return
            host = str(address[0])
            if self._pending.is_full(host):
                oldest = self._pending.find_oldest(host, new)
                self.refuse(host, "too many connections that have not said hello")
                if oldest is None:
                    end.close()
                    continue
                self.lose(oldest)
            new.add(self._open(end, host, now))

    def _open(self, end: socket.socket, host: str, now: float) -> Connection:
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in _KEEPALIVE:
            end.setsockopt(socket.IPPROTO_TCP, option, seconds)
        connection = Connection(self, end, host, now)
        self._connections[end.fileno()] = connection
        self._epoll.register(end, _IN)
        self._pending.add(connection)
        return connection

    def refuse(self, host: str, reason: str) -> None:
        """Counts a connection that is closed by a bound, with the reason for the log."""
        self.refused += 1
        self._on_refused(host, reason)

    def on_admitted(self, connection: Connection) -> None:
        """Counts a connection no longer as one that has to introduce itself."""
        self._pending.discard(connection)

    # -- reading

    def _read(self, connection: Connection, now: float, events: list[Event]) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            if connection.ending:
                self._drop(connection)
            else:
                self.lose(connection)
            return
        if connection.ending:
            return
        connection.moved_at = now
        self._collect(connection, partial(connection.receive, data), events)

    def _collect(
        self, connection: Connection, read: Callable[[list[Event]], bool], events: list[Event]
    ) -> None:
        """Adds what a connection has complete; a fault, or the end of its protocol, is handled."""
        before = len(events)
        try:
            over = read(events)
        except (DecodeError, OversizeError) as fault:
            if not connection.closed:
                events.append(Event(connection, fault=fault))
            return
        except Exception as error:  # noqa: BLE001 - a defect here must not end other connections
            self.refuse(connection.host, f"a defect of this program: {error!r}")
            self.lose(connection)
            return
        if len(events) > before:
            # Its owner answers at once: it admits the connection, or closes it.
            self._pending.discard(connection)
        if connection.waits:
            self._waiting.append(connection)
            self.pending = True
        if over and not connection.closed:
            self.end(connection)
            self._lost.append(connection)

    # -- writing

    def _flush(self, connection: Connection) -> None:
        out = connection.out
        try:
            while out:
                del out[: connection.socket.send(out[:_READ_BYTES])]
                connection.moved_at = self._now()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.lose(connection)
            return
        self.watch(connection)

    def watch(self, connection: Connection) -> None:
        """Waits for what the connection can do now: write its rest, and read if little waits."""
        if connection.closed and not connection.ending:
            return
        out = len(connection.out)
        mask = _OUT if out else 0
        if out <= self.limits.waiting_bytes:
            mask |= _IN
        if mask != connection.mask:
            connection.mask = mask
            self._epoll.modify(connection.socket, mask)
        if connection.ending and not out:
            self._shut(connection)

    # -- ending

    def end(self, connection: Connection) -> None:
        """Closes a connection after its last bytes; the owner gets no event."""
        self.on_admitted(connection)
        connection.closed = connection.ending = True
        connection.deadline = self._now() + _LAST_WORDS_SECONDS
        self._ending.append(connection)
        if len(self._ending) > _ENDING:
            self._drop(self._ending.popleft())
        self.watch(connection)

    def _shut(self, connection: Connection) -> None:
        try:
            connection.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(connection)

    def lose(self, connection: Connection) -> None:
        """Closes a connection at once; its owner gets an event."""
        if not connection.closed:
            self._lost.append(connection)
            self.pending = True
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self.on_admitted(connection)
        connection.closed, connection.ending = True, False
        descriptor = connection.socket.fileno()
        if descriptor >= 0:
            self._connections.pop(descriptor, None)
            self._epoll.unregister(descriptor)
            connection.socket.close()

    def _check_deadlines(self, now: float) -> None:
        if self._accepts_at and now >= self._accepts_at:
            self._accepts_at = 0.0
            self._epoll.modify(self._server, _IN)
        for connection in self._pending.find_late(now):
            self.refuse(connection.host, "no valid greeting in time")
            self.lose(connection)
        while self._ending and (now >= self._ending[0].deadline or not self._ending[0].ending):
            self._drop(self._ending.popleft())
        stalled = now - self.limits.stalled_seconds
        for connection in list(self._connections.values()):
            stuck = connection.begun or connection.out
            if connection.moved_at <= stalled and stuck and not connection.ending:
                self.lose(connection)
