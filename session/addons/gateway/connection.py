"""One connection from outside: its protocol, its unsent bytes, its events."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from session.addons.gateway.http import HttpProtocol
from session.addons.gateway.protocols import (
    Encoding,
    FrameProtocol,
    ProtocolSettings,
    StreamLimits,
    StreamProtocol,
)
from session.addons.gateway.tls import TlsLayer
from session.errors import DecodeError, OversizeError

if TYPE_CHECKING:
    import ssl


_CHOICE_BYTES = 4
# As the length of a frame, each of these is above 1 GB.
_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC")


_TLS_BYTES = 3
# Most payloads of one connection in a round.
_PAYLOADS = 4


class ConnectionOwner(Protocol):
    """The listener of a connection, as the connection sees it; methods as there."""

    protocols: ProtocolSettings
    limits: StreamLimits
    tls: ssl.SSLContext | None

    def on_admitted(self, connection: Connection) -> None: ...

    def watch(self, connection: Connection) -> None: ...

    def end(self, connection: Connection) -> None: ...

    def lose(self, connection: Connection) -> None: ...

    def refuse(self, host: str, reason: str) -> None: ...


def choose_protocol(first: bytes, settings: ProtocolSettings) -> StreamProtocol | None:
    """Returns the protocol that the first bytes of a connection begin; None if they are too few."""
    if len(first) < _CHOICE_BYTES:
        return None
    if first[:_CHOICE_BYTES] in _METHODS:
        return HttpProtocol(settings)
    return FrameProtocol(settings.limit_bytes)


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
        encoding: Encoding of the payloads; None until the protocol prescribes it, or it is set.
        host: Address of the client.
        owner: Any object of the user of the listener.
        closed: True once nothing can be sent.
        ending: True while the last bytes are sent.
        deadline: Time until which it must be admitted, or until which its end may last.
        moved_at: Time of its last progress.
        out: Bytes to send.
        waits: True while further payloads may be complete that were not taken yet.
        socket, mask: Socket and events of the listener's epoll.
    """

    __slots__ = (
        "_admitted",
        "_first",
        "_listener",
        "_protocol",
        "_received",
        "_start",
        "_tls",
        "_whole",
        "closed",
        "deadline",
        "encoding",
        "ending",
        "host",
        "mask",
        "moved_at",
        "out",
        "owner",
        "socket",
        "waits",
    )

    def __init__(
        self, listener: ConnectionOwner, end: socket.socket, host: str, now: float
    ) -> None:
        self.host = host
        self.owner: Any = None
        self.encoding: Encoding | None = None
        self.closed = False
        self._listener = listener
        self.socket = end
        # Received bytes until they tell the protocol.
        self._start = b""
        self._protocol: StreamProtocol | None = None
        self._tls = None if listener.tls is None else TlsLayer(listener.tls)
        self._first: bytes | None = b""
        self.out = bytearray()
        self._received = 0
        # Of frames in the clear, see :meth:`FrameReader.read_whole`.
        self._whole: Callable[[bytes], bytes | None] = lambda data: None
        self._admitted = self.ending = self.waits = False
        self.moved_at, self.deadline = now, now + listener.limits.greeting_seconds
        self.mask = select.EPOLLIN

    @property
    def begun(self) -> bool:
        """True while the rest of a message is missing."""
        return bool(self._start) if self._protocol is None else self._protocol.begun

    def admit(self) -> None:
        """Lifts the bounds of a connection that has not introduced itself."""
        if not self._admitted:
            self._admitted = True
            self._listener.on_admitted(self)
            if isinstance(self._protocol, FrameProtocol):
                self._protocol.limit_bytes = self._listener.protocols.limit_bytes
                if self._tls is None:
                    self._whole = self._protocol.read_whole

    def send(self, payload: bytes) -> None:
        """Sends a payload without waiting."""
        if not self.closed and self._protocol is not None:
            self._write(self._protocol.wrap(payload))

    def close(self) -> None:
        """Closes the connection once everything is written; no event follows."""
        if self.closed:
            return
        if self._protocol is not None:
            self._write(self._protocol.close())
        self._listener.end(self)

    def _write(self, data: bytes) -> None:
        if self._tls is not None:
            data = self._tls.encrypt(data)
        if not data:
            return
        if not self.out:
            try:
                data = data[self.socket.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self._listener.lose(self)
                return
        if data:
            self.out += data
            self._listener.watch(self)

    def receive(self, data: bytes, events: list[Event]) -> bool:
        """Adds the payloads that received bytes complete, and answers what the protocol asks.

        Returns:
            True once the client has ended its protocol.

        Raises:
            DecodeError: they are no valid protocol.
            OversizeError: a message, or the greeting, is too long.
        """
        payload = self._whole(data)
        if payload is not None:
            events.append(Event(self, payload))
            return False
        if not self._admitted:
            self._received += len(data)
            most = self._listener.limits.greeting_bytes
            if self._received > most:
                raise OversizeError(f"more than {most} bytes before the welcome")
        if self._first is not None or self._tls is not None:
            data = self._decrypt(data)
        if self._protocol is None:
            data = self._start = self._start + data
            self._protocol = choose_protocol(data, self._listener.protocols)
            if isinstance(self._protocol, FrameProtocol):
                self._protocol.limit_bytes = self._listener.limits.greeting_bytes
        if self._protocol is not None:
            self._protocol.feed(data)
            self._start = b""
        return self.pop_payloads(events)

    def pop_payloads(self, events: list[Event]) -> bool:
        """Adds a few of the payloads that are complete; the rest waits, see :attr:`waits`.

        Otherwise one connection that sends very many short messages would hold up all others.

        Returns, raises: as :meth:`receive`.
        """
        protocol = self._protocol
        self.waits = False
        if protocol is None:
            return False
        for _ in range(_PAYLOADS):
            payload = protocol.next()
            if payload is None:
                break
            events.append(Event(self, payload))
        else:
            self.waits = True
        if not protocol.speaks:
            return False
        if self.encoding is None:
            self.encoding = protocol.encoding
        self._write(protocol.pop_answers())
        return protocol.over

    def _decrypt(self, data: bytes) -> bytes:
        """Returns the decrypted bytes; checks that the client speaks TLS exactly if it is on."""
        if self._first is not None:
            data = self._first + data
            if len(data) < _TLS_BYTES:
                self._first = data
                return b""
            self._first = None
            # As a length, these bytes are above the bound of a first message.
            wants = data[:2] == b"\x16\x03" and data[2] > 0
            if wants is (self._tls is None):
                reason = "wants TLS, which is off here" if wants else "came without TLS"
                self._listener.refuse(self.host, f"the client {reason}")
                self._listener.lose(self)
                return b""
        if self._tls is None:
            return data
        plain = self._tls.decrypt(data)
        self._write(b"")
        return plain
