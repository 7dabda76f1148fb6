"""TCP port for connections from outside: accepts, reads and writes, within bounds."""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from session.errors import ConfigError, DecodeError, OversizeError
from session.process.clock import Clock
from session.stream.door import DoorSettings, Encoding
from session.stream.doorway import Doorway
from session.stream.tls import TlsLayer

_READ_BYTES = 1 << 16
_TLS_BYTES = 3
_BACKLOG = 256
_ACCEPTS_AT_ONCE = 64
_CHORES_SECONDS = 0.25
# After the last answer the rest of what the client sends is read and dropped for so long: to close
# at once would reset the connection, and the client would not see the answer.
_LAST_WORDS_SECONDS = 1.0
_ENDING = 256
_SHUT_OUT, _SHUT_OUT_SECONDS = 1024, 60.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


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


class Event(NamedTuple):
    """Event on a connection: a payload, or its loss, or a fault.

    After a fault nothing more is read: the owner sends an answer and closes.
    """

    connection: Connection
    payload: bytes | None = None
    fault: DecodeError | OversizeError | None = None


class Connection:
    """One connection; made by the :class:`Listener`.

    Attributes:
        host: address of the client.
        owner: for the user of the listener.
        closed: True once nothing can be sent.
    """

    __slots__ = (
        "_admitted",
        "_deadline",
        "_ending",
        "_first",
        "_listener",
        "_mask",
        "_moved_at",
        "_out",
        "_received",
        "_socket",
        "_tls",
        "_way",
        "closed",
        "host",
        "owner",
    )

    def __init__(self, listener: Listener, end: socket.socket, host: str, now: float) -> None:
        self.host = host
        self.owner: Any = None
        self.closed = False
        self._listener = listener
        self._socket = end
        self._way = Doorway(listener.door)
        self._tls = None if listener.tls is None else TlsLayer(listener.tls)
        self._first: bytes | None = b""
        self._out = bytearray()
        self._received = 0
        self._admitted = self._ending = False
        self._moved_at, self._deadline = now, now + listener.limits.greeting_seconds
        self._mask = select.EPOLLIN

    @property
    def encoding(self) -> Encoding | None:
        """Encoding of the payloads; None until it is prescribed by the protocol, or set."""
        return None if self._way.door is None else self._way.door.encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        self._way.opened().encoding = encoding

    @property
    def idle(self) -> bool:
        """True if everything was written."""
        return not self._out

    def admit(self) -> None:
        """Lifts the bounds of a connection that has not introduced itself."""
        if not self._admitted:
            self._admitted = True
            self._listener.on_admitted(self)

    def send(self, payload: bytes) -> None:
        """Sends a payload without waiting."""
        if not self.closed and self._way.door is not None:
            self._write(self._way.door.wrapped(payload))

    def close(self) -> None:
        """Closes the connection once everything is written; no event follows."""
        if self.closed:
            return
        if self._way.door is not None:
            self._write(self._way.door.last_words())
        self._listener.end(self)

    def _write(self, data: bytes) -> None:
        if self._tls is not None:
            data = self._tls.encrypted(data)
        if self._out:
            self._out += data
            return
        if not data:
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._listener.lose(self)
            return
        if sent < len(data):
            self._out += data[sent:]
            self._listener.watch(self)


class Listener:
    """Accepts connections on a port, and exchanges payloads with them; never blocks.

    It can be waited for beside the sockets of the wire, see :func:`session.wire.sockets.poll`.

    Args:
        host, port: to bind to; port 0: any free one.
        door: rules of the protocols.
        clock: for deadlines.
        limits: bounds.
        tls: settings of the server; None: no TLS.

    Attributes:
        port: bound port.
        refused: connections that were closed at accept, by a bound, or because of TLS.
        trouble: newest reason of a closed connection and its address, for the log; "" after the
            owner has cleared it.

    Raises:
        ConfigError: the port cannot be bound.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        door: DoorSettings,
        clock: Clock,
        limits: StreamLimits = StreamLimits(),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.door, self.limits, self.tls = door, limits, tls
        self.refused = 0
        self.trouble = ""
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
        self._epoll.register(self._server, select.EPOLLIN)
        self.descriptor = self._epoll.fileno()
        self._shut_out: dict[str, float] = {}
        self._accepts_at = 0.0
        self._chores_at = 0.0
        self._connections: dict[int, Connection] = {}
        self._greeting: dict[Connection, None] = {}
        self._hosts: Counter[str] = Counter()
        self._ending: deque[Connection] = deque()
        self._lost: list[Connection] = []

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
        for descriptor, mask in self._epoll.poll(0):
            connection = self._connections.get(descriptor)
            if connection is None:
                self._accept(now)
                continue
            if mask & select.EPOLLOUT:
                self._flush(connection)
            if mask & ~select.EPOLLOUT and (connection._ending or not connection.closed):
                events += self._read(connection, now)
        if now >= self._chores_at:
            self._chores_at = now + _CHORES_SECONDS
            self._check_deadlines(now)
        lost, self._lost = self._lost, []
        return [*events, *(Event(each) for each in lost)]

    def close(self) -> None:
        """Closes the port and all connections, after a last try to write."""
        self._server.close()
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._epoll.close()

    # -- accepting

    def _accept(self, now: float) -> None:
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
            if now < self._shut_out.get(host, 0.0):
                self._refuse(host, "closed out after many wrong tokens")
                end.close()
                continue
            limits = self.limits
            if (
                len(self._greeting) >= limits.greeting
                or self._hosts[host] >= limits.greeting_per_host
            ):
                self._refuse(host, "too many connections that have not introduced themselves")
                end.close()
                continue
            self._open(end, host, now)

    def _open(self, end: socket.socket, host: str, now: float) -> None:
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in _KEEPALIVE:
            end.setsockopt(socket.IPPROTO_TCP, option, seconds)
        connection = Connection(self, end, host, now)
        self._connections[end.fileno()] = connection
        self._epoll.register(end, select.EPOLLIN)
        self._greeting[connection] = None
        self._hosts[host] += 1

    def _refuse(self, host: str, reason: str) -> None:
        self.refused += 1
        self.trouble = f"{host}: {reason}"

    def shut_out(self, host: str) -> None:
        """Closes all new connections of an address for a minute."""
        if len(self._shut_out) < _SHUT_OUT:
            self._shut_out[host] = self._now() + _SHUT_OUT_SECONDS

    def on_admitted(self, connection: Connection) -> None:
        """Counts a connection no longer as one that has to introduce itself."""
        if connection in self._greeting:
            del self._greeting[connection]
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    # -- reading

    def _read(self, connection: Connection, now: float) -> Iterator[Event]:
        try:
            data = connection._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            if connection._ending:
                self._drop(connection)
            else:
                self.lose(connection)
            return
        if connection._ending:
            return
        connection._moved_at = now
        try:
            yield from self._payloads(connection, data)
        except (DecodeError, OversizeError) as fault:
            if not connection.closed:
                yield Event(connection, fault=fault)

    def _payloads(self, connection: Connection, data: bytes) -> Iterator[Event]:
        if not connection._admitted:
            connection._received += len(data)
            if connection._received > self.limits.greeting_bytes:
                raise OversizeError(
                    f"more than {self.limits.greeting_bytes} bytes before the welcome"
                )
        if connection._first is not None or connection._tls is not None:
            data = self._plain(connection, data)
            if connection.closed:
                return
        way = connection._way
        if data:
            way.feed(data)
        door = way.door
        if door is None:
            return
        while not connection.closed and (payload := door.next()) is not None:
            yield Event(connection, payload)
        if connection.closed:
            return
        answers = door.answers()
        if answers:
            connection._write(answers)
        if door.over:
            self.end(connection)
            self._lost.append(connection)
        else:
            self.watch(connection)

    def _plain(self, connection: Connection, data: bytes) -> bytes:
        """Returns the decrypted bytes; checks that the client speaks TLS exactly if it is on."""
        if connection._first is not None:
            data = connection._first + data
            if len(data) < _TLS_BYTES:
                connection._first = data
                return b""
            connection._first = None
            # As a length, these bytes are above the bound of a first message.
            wants = data[:2] == b"\x16\x03" and data[2] > 0
            if wants is (connection._tls is None):
                reason = "wants TLS, which is off here" if wants else "came without TLS"
                self._refuse(connection.host, f"the client {reason}")
                self.lose(connection)
                return b""
        if connection._tls is None:
            return data
        plain = connection._tls.decrypted(data)
        connection._write(b"")
        return plain

    # -- writing

    def _flush(self, connection: Connection) -> None:
        out = connection._out
        try:
            while out:
                del out[: connection._socket.send(out[:_READ_BYTES])]
                connection._moved_at = self._now()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.lose(connection)
            return
        self.watch(connection)

    def watch(self, connection: Connection) -> None:
        """Waits for what the connection can do now: write its rest, and read if little waits."""
        if connection.closed and not connection._ending:
            return
        out = len(connection._out)
        mask = select.EPOLLOUT if out else 0
        if out <= self.limits.waiting_bytes:
            mask |= select.EPOLLIN
        if mask != connection._mask:
            connection._mask = mask
            self._epoll.modify(connection._socket, mask)
        if connection._ending and not out:
            self._shut(connection)

    # -- ending

    def end(self, connection: Connection) -> None:
        """Closes a connection after its last bytes; the owner gets no event."""
        self.on_admitted(connection)
        connection.closed = connection._ending = True
        connection._deadline = self._now() + _LAST_WORDS_SECONDS
        self._ending.append(connection)
        if len(self._ending) > _ENDING:
            self._drop(self._ending.popleft())
        self.watch(connection)

    def _shut(self, connection: Connection) -> None:
        try:
            connection._socket.shutdown(socket.SHUT_WR)
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
        connection.closed, connection._ending = True, False
        descriptor = connection._socket.fileno()
        if descriptor >= 0:
            self._connections.pop(descriptor, None)
            self._epoll.unregister(descriptor)
            connection._socket.close()

    def _check_deadlines(self, now: float) -> None:
        if self._accepts_at and now >= self._accepts_at:
            self._accepts_at = 0.0
            self._epoll.modify(self._server, select.EPOLLIN)
        for connection in [each for each in self._greeting if now >= each._deadline]:
            self._refuse(connection.host, "no valid greeting in time")
            self.lose(connection)
        while self._ending and (now >= self._ending[0]._deadline or not self._ending[0]._ending):
            self._drop(self._ending.popleft())
        self._shut_out = {host: until for host, until in self._shut_out.items() if now < until}
        stalled = now - self.limits.stalled_seconds
        for connection in list(self._connections.values()):
            stuck = connection._way.begun or connection._out
            if connection._moved_at <= stalled and stuck and not connection._ending:
                self.lose(connection)
