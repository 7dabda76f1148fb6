"""Frames of a byte stream: each payload has its length in front, 32 bits, little-endian."""

from __future__ import annotations

import struct

from session.errors import OversizeError

_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size


def pack_frame(payload: bytes) -> bytes:
    """Returns a payload with its length in front."""
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Cuts received bytes into payloads.

    Args:
        limit_bytes: Largest payload; may be changed at any time.
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

    def read_whole(self, data: bytes) -> bytes | None:
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
