"""Protocols of one connection from outside; bytes in, payloads out; no socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from session.config.string_enum import StringEnum
from session.wire.frames import FrameReader, pack_frame


class Encoding(StringEnum):
    """Encodings of a payload."""

    msgpack = ()
    json = ()


class Page(NamedTuple):
    """A page of the HTTP server."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ProtocolSettings:
    """Rules of all connections of a port.

    Args:
        limit_bytes: Largest payload.
        host: Name under which this machine is known; valid in the Host of a request.
        hosts: Further valid names.
        origins: Web pages, as in ``https://example.org``, that may connect besides the own ones.
        pages: Map from a path to its page.
        healthy: Function that returns False to make ``/healthz`` answer 503.
    """

    limit_bytes: int
    host: str = "localhost"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)
    healthy: Callable[[], bool] = lambda: True


class StreamProtocol(Protocol):
    """One protocol of a connection."""

    encoding: Encoding | None
    # False: there are only payloads; nothing to answer, and no end but that of the connection.
    speaks: bool

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""

    def next(self) -> bytes | None:
        """Returns the next payload, None if there is none; raises DecodeError, OversizeError."""

    def wrap(self, payload: bytes) -> bytes:
        """Returns the bytes that carry a payload."""

    def pop_answers(self) -> bytes:
        """Returns bytes that the protocol itself has to send now."""

    def close(self) -> bytes:
        """Returns the bytes that end the connection properly, as its last ones."""

    @property
    def begun(self) -> bool:
        """True while the rest of a message is missing."""

    @property
    def over(self) -> bool:
        """True once nothing is read any more: the connection ends after the last bytes."""


class FrameProtocol(FrameReader):
    """Binary frames; the encoding is that of the first payload."""

    encoding: Encoding | None = None
    over = speaks = False
    wrap = staticmethod(pack_frame)

    def pop_answers(self) -> bytes:
        """Returns nothing: frames need no answers."""
        return b""

    close = pop_answers


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of the connections of a port.

    Args:
        greeting_seconds: Time until a connection must be admitted, see :meth:`Connection.admit`.
        greeting_bytes: Bytes that it may send before.
        greeting: Maximum of connections that are not admitted yet; then the oldest one ends.
        greeting_per_host: Maximum of those from one address.
        waiting_bytes: Unsent bytes above which nothing is read from a client.
        stalled_seconds: Time without progress inside a message after which a connection is lost.
    """

    greeting_seconds: float = 5.0
    greeting_bytes: int = 8192
    greeting: int = 64
    greeting_per_host: int = 16
    waiting_bytes: int = 1 << 16
    stalled_seconds: float = 30.0
