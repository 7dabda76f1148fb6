"""Message format: one small msgpack header, then the raw bytes of the arrays.

A frame costs more than copying a few kilobytes, so small arrays share one frame, see
:class:`Layout`. No message can carry code: the header is plain data, an array is a dtype, a shape
and little-endian bytes. Invalid bytes raise :class:`~session.errors.DecodeError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack
import numpy as np

from session.errors import DecodeError, OversizeError
from session.nest import Array
from session.wire.roles import EVERYTHING, Grant

if TYPE_CHECKING:
    import zmq

Buffer: TypeAlias = "bytes | memoryview | zmq.Frame"
# (name, numpy dtype string, shape) of each array
Entries = tuple[tuple[str, str, tuple[int, ...]], ...]

_ENTRY_LENGTH = 3
_ALIGNMENT_BYTES = 8
_DIMENSIONS_LIMIT = 16
_LAYOUTS_KEPT = 256
# A longer layout is not cached: received layouts must not fill the memory.
_KEPT_BYTES = 4096
# msgpack allocates a list of the claimed length before it reads the items.
ARRAY_LIMIT = 1 << 16
DTYPES = {
    text: np.dtype(text)
    for text in (*("|b1", "|i1", "|u1"), *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)))
} | {f"<f{size}": np.dtype(f"<f{size}") for size in (2, 4, 8)}


class FrameSlice(NamedTuple):
    """One array: ``size`` bytes, at ``offset`` bytes if all share one buffer."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    offset: int


class Layout(NamedTuple):
    """All arrays of a message: ``size`` bytes if they share one buffer."""

    places: tuple[FrameSlice, ...]
    size: int

    def arrays(self, buffers: Sequence[Buffer]) -> dict[str, Array]:
        """Returns name -> read-only view on the array's own buffer, or on its part of a shared one.

        Raises:
            DecodeError: the buffers do not match this layout.
        """
        if len(buffers) == 1 < len(self.places):
            return self._share(_read_only(buffers[0]))
        if len(self.places) != len(buffers):
            raise DecodeError(f"{len(self.places)} arrays, {len(buffers)} buffers came")
        arrays: dict[str, Array] = {}
        for place, buffer in zip(self.places, buffers, strict=True):
            view = _read_only(buffer)
            if place.size != len(view):
                wrong = f"{list(place.shape)} of {place.dtype.str!r} is not {len(view)} bytes"
                raise DecodeError(f"array {place.name[:80]!r}: {wrong}")
            arrays[place.name] = np.ndarray(place.shape, place.dtype, view)
        return arrays

    def _share(self, buffer: memoryview) -> dict[str, Array]:
        if self.size != len(buffer):
            raise DecodeError(f"arrays of {self.size} bytes, {len(buffer)} came")
        return {
            name: np.ndarray(shape, dtype, buffer, offset)
            for name, dtype, shape, _, offset in self.places
        }

    def joined(self, arrays: Sequence[Array]) -> bytes:
        """Joins contiguous arrays into one buffer."""
        parts: list[Any] = []
        for place, array in zip(self.places, arrays, strict=True):
            parts.append(array)
            if place.size % _ALIGNMENT_BYTES:
                parts.append(bytes(-place.size % _ALIGNMENT_BYTES))
        return b"".join(parts)


def _read_only(buffer: Any) -> memoryview:
    return memoryview(buffer).toreadonly()


@lru_cache(maxsize=_LAYOUTS_KEPT)
def pack_layout(entries: Entries) -> tuple[bytes, Layout]:
    """Returns a layout packed for a header, and the same as a Layout."""
    return msgpack.packb(entries, use_bin_type=True), _lay_out(entries)


def unpack_layout(packed: bytes) -> Layout:
    """Decodes the layout in a header.

    Raises:
        DecodeError: the bytes are not a valid layout.
    """
    return _unpack_kept(packed) if len(packed) <= _KEPT_BYTES else _unpack(packed)


def _unpack(packed: bytes) -> Layout:
    try:
        entries = msgpack.unpackb(packed, raw=False, max_array_len=ARRAY_LIMIT)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise DecodeError(f"layout does not decode: {error}") from None
    if type(entries) is not list:
        raise DecodeError("layout is not a list of arrays")
    return _lay_out([_describe(entry) for entry in entries])


_unpack_kept = lru_cache(maxsize=_LAYOUTS_KEPT)(_unpack)


def _describe(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    """Checks the types and values of a received entry."""
    # The message omits the entry until its types are known: a hostile one may be very long.
    if type(entry) is not list or len(entry) != _ENTRY_LENGTH:
        raise DecodeError("a layout's entry is not a name, a dtype and a shape")
    name, text, shape = entry
    if type(name) is not str or type(text) is not str or type(shape) is not list:
        raise DecodeError("a layout's entry is not a name, a dtype and a shape")
    if len(shape) > _DIMENSIONS_LIMIT or not all(type(n) is int and n >= 0 for n in shape):
        raise DecodeError(f"array {name[:80]!r} has a shape that is none")
    if text not in DTYPES:
        raise DecodeError(f"array {name[:80]!r} has the dtype {text[:8]!r}")
    try:
        # An empty array may still claim a length that numpy cannot index.
        np.broadcast_to(np.zeros((), DTYPES[text]), shape)
    except ValueError as error:
        raise DecodeError(f"array {name[:80]!r}: {error}") from None
    return name, text, tuple(shape)


def _lay_out(entries: Sequence[tuple[str, str, tuple[int, ...]]]) -> Layout:
    places: list[FrameSlice] = []
    offset = 0
    for name, text, shape in entries:
        dtype = DTYPES[text]
        size = math.prod(shape) * dtype.itemsize
        places.append(FrameSlice(name, dtype, shape, size, offset))
        offset += size + -size % _ALIGNMENT_BYTES
    return Layout(tuple(places), offset)


PROTOCOL_VERSION = 4

_HEADER_LIMIT_BYTES = 16 << 20
_HEADER_TYPES = (int, str, str, int, bytes, int, dict, bytes)
_NAME = 2
NAME_LIMIT = 63
# Milliseconds of the wall clock need 41 bits; a double represents every integer below 2**53.
INCARNATION_LIMIT = 1 << 53
_FINGERPRINT_BYTES = 32
_GENERATION_LIMIT = 1 << 31
# Measured: above this size, copying arrays into one frame costs more than one frame each.
_JOINED_BYTES = 1 << 18
_NO_ARRAYS, _ = pack_layout(())
_DTYPE_TEXTS = {dtype: text for text, dtype in DTYPES.items()}


class ProtocolError(DecodeError):
    """A message has another version of the protocol.

    Args:
        name: name of the sender.
        version: protocol version of the sender.
    """

    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"'{name}' speaks protocol {version}, this is protocol {PROTOCOL_VERSION}")
        self.name = name
        self.version = version


class Identity(NamedTuple):
    """Identity of a sender, in the header of every message.

    Attributes:
        name: component name, such as ``agent-0``.
        incarnation: wall clock at the component's start [ms].
        fingerprint: first eight bytes of the experiment's fingerprint.
        generation: incremented when a whole population is reset in place; 0 otherwise.
    """

    name: str
    incarnation: int = 0
    fingerprint: bytes = b""
    generation: int = 0


ANONYMOUS = Identity("")


@dataclass(slots=True)
class Message:
    """One message: a kind, plain fields, and named arrays.

    Args:
        kind: kind of message, such as ``chunk`` or ``fetch``.
        fields: plain data that msgpack can carry (no arrays).
        arrays: name -> array of any shape, of a boolean, integer or float dtype; after decoding
            they are read-only views on the received frames.
        sender: set by the sending socket.
        grant: rights of the sender's proved key; set by the receiving socket.
        frames: the frames that it was decoded from; empty in a message that is to be sent.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    sender: Identity = ANONYMOUS
    grant: Grant = EVERYTHING
    frames: Sequence[Buffer] = ()


def encode(message: Message) -> list[Buffer]:
    """Returns the frames of a message: the header, then one raw buffer per array, or one for all.

    Large arrays are not copied; they must not change until the message is sent.

    Raises:
        TypeError: a field or a dtype cannot be encoded.
    """
    entries, arrays = [], []
    for name, array in message.arrays.items():
        text = _DTYPE_TEXTS.get(array.dtype)
        if text is None:
            array = _little_endian(name, array)
            text = array.dtype.str
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        entries.append((name, text, array.shape))
        arrays.append(array)
    packed, layout = pack_layout(tuple(entries))
    sender = message.sender
    header = (
        PROTOCOL_VERSION,
        message.kind,
        sender.name,
        sender.incarnation,
        sender.fingerprint,
        sender.generation,
        message.fields,
        packed,
    )
    frame = msgpack.packb(header, use_bin_type=True)
    if len(arrays) > 1 and layout.size <= _JOINED_BYTES:
        return [frame, layout.joined(arrays)]
    return [frame, *(array.data.cast("B") if array.size else b"" for array in arrays)]


def _little_endian(name: str, array: Array) -> Array:
    swapped = array.dtype.newbyteorder("<")
    if swapped not in _DTYPE_TEXTS:
        raise TypeError(f"array '{name}' has dtype {array.dtype}, which the wire cannot carry")
    return array.astype(swapped)


def size_bytes(frames: Sequence[Buffer]) -> int:
    """Total size of all frames [bytes]."""
    return sum(map(len, frames))


def decode(
    frames: Sequence[Buffer], limit_bytes: int, header_bytes: int = _HEADER_LIMIT_BYTES
) -> Message:
    """Decodes a message; its arrays are read-only views on the frames.

    Args:
        frames: as received.
        limit_bytes: maximum total size of the frames.
        header_bytes: maximum size of the header; decoded values can need 64 times as much.

    Raises:
        OversizeError: the frames or the header exceed their limit.
        DecodeError: the frames are invalid in another way.
    """
    if not frames:
        raise DecodeError("empty message")
    total = size_bytes(frames)
    if total > limit_bytes:
        raise OversizeError(f"message of {total} bytes, the limit is {limit_bytes}")
    if len(frames[0]) > header_bytes:
        raise OversizeError(f"header of {len(frames[0])} bytes, the limit is {header_bytes}")
    _, kind, name, incarnation, fingerprint, generation, fields, packed = _header(frames[0])
    sender = Identity(name, incarnation, fingerprint, generation)
    if len(frames) == 1 and packed == _NO_ARRAYS:
        return Message(kind, fields, {}, sender, frames=frames)
    arrays = unpack_layout(packed).arrays(frames[1:])
    return Message(kind, fields, arrays, sender, frames=frames)


def _header(frame: Buffer) -> list[Any]:
    try:
        header = msgpack.unpackb(frame, raw=False, strict_map_key=False, max_array_len=ARRAY_LIMIT)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise DecodeError(f"header does not decode: {error}") from None
    # In every protocol version the header is a list that begins with version, kind and name.
    if type(header) is list and header and type(header[0]) is int and header[0] != PROTOCOL_VERSION:
        name = header[_NAME] if len(header) > _NAME and type(header[_NAME]) is str else ""
        raise ProtocolError(name[:NAME_LIMIT], header[0])
    if type(header) is not list or len(header) != len(_HEADER_TYPES):
        raise DecodeError("header is not that of a surreal_like message")
    if tuple(map(type, header)) != _HEADER_TYPES:
        raise DecodeError("header holds values of wrong types")
    _check_identity(*header[_NAME : _NAME + 4])
    return header


def _check_identity(name: str, incarnation: int, fingerprint: bytes, generation: int) -> None:
    """Raises DecodeError if the sender's identity is out of bounds."""
    if len(name) > NAME_LIMIT or len(fingerprint) > _FINGERPRINT_BYTES:
        raise DecodeError("sender with a name or fingerprint that is too long")
    if not (0 <= incarnation < INCARNATION_LIMIT and 0 <= generation < _GENERATION_LIMIT):
        raise DecodeError(f"sender of incarnation {incarnation}, generation {generation}")
