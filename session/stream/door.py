"""Protocols of one connection from outside; bytes in, payloads out; frames; no socket, no clock."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from session.config.string_enum import StringEnum
from session.errors import OversizeError

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size


def framed(payload: bytes) -> bytes:
    """Returns a payload with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Cuts received bytes into payloads.

    Args:
        limit_bytes: largest payload; may be changed at any time.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._held: bytes | bytearray = b""

    @property
    def begun(self) -> bool:
        """True while the rest of a frame is missing; call it after :meth:`next`."""
        return bool(self._held)

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if not self._held:
            # Most often these bytes are one whole frame: they are not copied.
            self._held = data
            return
        if not isinstance(self._held, bytearray):
            self._held = bytearray(self._held)
        self._held += data

    def whole(self, data: bytes) -> bytes | None:
        """Returns the payload of received bytes that are one frame: most are, and need no copy.

        Otherwise returns None: they have to be added.
        """
        if self._held or len(data) < LENGTH_BYTES:
            return None
        size = len(data) - LENGTH_BYTES
        fits = size == _LENGTH.unpack_from(data)[0] <= self.limit_bytes
        return data[LENGTH_BYTES:] if fits else None

    def next(self) -> bytes | None:
        """Returns the next payload, None if it is not complete.

        Raises:
            OversizeError: its length is above the limit; nothing is kept.
        """
        held = self._held
        if not held or (size := len(held)) < LENGTH_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(held)
        if length > self.limit_bytes:
            self._held = b""
            raise OversizeError(f"message of {length} bytes, the limit is {self.limit_bytes}")
        end = LENGTH_BYTES + length
        if size == end:
            self._held = b""
            return bytes(held[LENGTH_BYTES:])
        if size < end:
            return None
        payload = bytes(held[LENGTH_BYTES:end])
        if isinstance(held, bytearray):
            del held[:end]
        else:
            self._held = bytearray(held[end:])
        return payload


class Encoding(StringEnum):
    """Encodings of a payload."""

    msgpack = ()
    json = ()


class Page(NamedTuple):
    """A page of the HTTP server."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Rules of all connections of a port.

    Args:
        limit_bytes: largest payload.
        host: name under which this machine is known; valid in the Host of a request.
        hosts: further valid names.
        origins: web pages, as in ``https://example.org``, that may connect besides the own ones.
        pages: path -> page.
        healthy: False makes ``/healthz`` answer 503.
    """

    limit_bytes: int
    host: str = "localhost"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)
    healthy: Callable[[], bool] = lambda: True


class Door(Protocol):
    """One protocol of a connection."""

    encoding: Encoding | None
    # False: there are only payloads; nothing to answer, and no end but that of the connection.
    speaks: bool

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""

    def next(self) -> bytes | None:
        """Returns the next payload, None if there is none; raises DecodeError, OversizeError."""

    def wrapped(self, payload: bytes) -> bytes:
        """Returns the bytes that carry a payload."""

    def answers(self) -> bytes:
        """Returns bytes that the protocol itself has to send now."""

    def last_words(self) -> bytes:
        """Returns the bytes that end the connection properly."""

    @property
    def begun(self) -> bool:
        """True while the rest of a message is missing."""

    @property
    def over(self) -> bool:
        """True once nothing is read any more: the connection ends after the last bytes."""


class FrameDoor:
    """Binary frames; the encoding is that of the first payload."""

    over = speaks = False

    def __init__(self, settings: DoorSettings) -> None:
        self.encoding: Encoding | None = None
        self._reader = FrameReader(settings.limit_bytes)
        self.feed, self.next = self._reader.feed, self._reader.next
        self.whole = self._reader.whole

    wrapped = staticmethod(framed)

    def limit(self, limit_bytes: int) -> None:
        """Sets the largest payload from now on."""
        self._reader.limit_bytes = limit_bytes

    @property
    def begun(self) -> bool:
        """True while the rest of a frame is missing."""
        return self._reader.begun

    def answers(self) -> bytes:
        """Returns nothing: frames need no answers."""
        return b""

    last_words = answers
