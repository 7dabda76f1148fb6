"""Messages as bytes: one small msgpack header, then the raw buffer of each array.

Several arrays that are small together share one frame, behind each other at multiples of eight
bytes: a frame costs more than a few kilobytes do. Nothing on the wire can carry code: the header is
plain data, an array is a dtype, a shape and little-endian bytes. Whatever does not decode raises
:class:`~session.errors.DecodeError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import zmq

from session.errors import DecodeError, OversizeError

PROTOCOL_VERSION = 2

Array = npt.NDArray[Any]
Buffer = bytes | memoryview | zmq.Frame

_HEADER_LIMIT_BYTES = 16 << 20
_HEADER_TYPES = (int, str, str, int, bytes, int, dict, list)
_NAME = 2
_NAME_LIMIT = 80
_ENTRY_LENGTH = 3
# Above this, copying arrays into one frame costs more than a frame for each.
_JOINED_BYTES = 1 << 16
_ALIGNMENT_BYTES = 8
_DIMENSIONS_LIMIT = 16
# An array in a header reserves its memory before its entries are read.
_HEADER_ARRAY_LIMIT = 1 << 16
_DTYPES = {
    text: np.dtype(text)
    for text in (*("|b1", "|i1", "|u1"), *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)))
} | {f"<f{size}": np.dtype(f"<f{size}") for size in (2, 4, 8)}


class ProtocolError(DecodeError):
    """A message of another version of the protocol.

    Args:
        name: of who sent it.
        version: of its protocol.
    """

    def __init__(self, name: str, version: int) -> None:
        super().__init__(f"'{name}' speaks protocol {version}, this is protocol {PROTOCOL_VERSION}")
        self.name = name
        self.version = version


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks: stands in the header of every message.

    Args:
        name: component name, such as ``agent-0``.
        incarnation: milliseconds of the wall clock at the component's start.
        fingerprint: first eight bytes of the experiment's fingerprint.
        generation: rises when a whole population is reset in place; 0 otherwise.
    """

    name: str
    incarnation: int = 0
    fingerprint: bytes = b""
    generation: int = 0


NOBODY = Identity("")


@dataclass(slots=True)
class Message:
    """One message: a kind, plain fields, and named arrays.

    Args:
        kind: what it is, such as ``chunk`` or ``fetch``.
        fields: plain data that msgpack can carry (no arrays).
        arrays: name -> array of any shape, of a boolean, integer or float dtype; after decoding
            they are read-only views on the received frames.
        sender: filled by the socket that sends.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    sender: Identity = NOBODY


def encode(message: Message) -> list[Buffer]:
    """Returns the frames of a message: the header, then one raw buffer per array or for all.

    Large arrays are not copied; they must not change until the message has left.

    Raises:
        TypeError: a field or a dtype cannot be carried.
    """
    manifest: list[tuple[str, str, tuple[int, ...]]] = []
    frames: list[Buffer] = [b""]
    for name, array in message.arrays.items():
        text = array.dtype.str
        if text not in _DTYPES:
            array = _little_endian(name, array)
            text = array.dtype.str
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        manifest.append((name, text, array.shape))
        frames.append(array.data.cast("B") if array.size else b"")
    who = message.sender
    header = (
        PROTOCOL_VERSION,
        message.kind,
        who.name,
        who.incarnation,
        who.fingerprint,
        who.generation,
        message.fields,
        manifest,
    )
    frames[0] = msgpack.packb(header, use_bin_type=True)
    if len(frames) > 2 and size_bytes(frames) - len(frames[0]) <= _JOINED_BYTES:
        return [frames[0], _joined(frames[1:])]
    return frames


def _joined(buffers: Sequence[Any]) -> bytes:
    """The buffers behind each other, each filled up to a multiple of eight bytes."""
    parts = []
    for buffer in buffers:
        parts.append(buffer)
        if len(buffer) % _ALIGNMENT_BYTES:
            parts.append(bytes(-len(buffer) % _ALIGNMENT_BYTES))
    return b"".join(parts)


def _little_endian(name: str, array: Array) -> Array:
    swapped = array.dtype.newbyteorder("<")
    if swapped.str not in _DTYPES:
        raise TypeError(f"array '{name}' has dtype {array.dtype}, which the wire cannot carry")
    return array.astype(swapped)


def size_bytes(frames: Sequence[Buffer]) -> int:
    """Bytes of all frames together."""
    return sum(map(len, frames))


def decode(frames: Sequence[Buffer], limit_bytes: int) -> Message:
    """Returns the message that the frames hold; its arrays are read-only views on them.

    Raises:
        OversizeError: the frames hold more than ``limit_bytes``.
        DecodeError: anything else that is wrong with them.
    """
    if not frames:
        raise DecodeError("empty message")
    total = size_bytes(frames)
    if total > limit_bytes or len(frames[0]) > _HEADER_LIMIT_BYTES:
        raise OversizeError(f"message of {total} bytes, the limit is {limit_bytes}")
    kind, name, incarnation, fingerprint, generation, fields, manifest = _header(frames[0])
    sender = Identity(name, incarnation, fingerprint, generation)
    return Message(kind, fields, _arrays(manifest, frames[1:]), sender)


def _header(frame: Buffer) -> tuple[Any, ...]:
    try:
        header = msgpack.unpackb(
            frame, raw=False, strict_map_key=False, max_array_len=_HEADER_ARRAY_LIMIT
        )
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise DecodeError(f"header does not decode: {error}") from None
    # In every version of the protocol a header is a list that begins with version, kind and name.
    if type(header) is list and header and type(header[0]) is int and header[0] != PROTOCOL_VERSION:
        name = header[_NAME] if len(header) > _NAME and type(header[_NAME]) is str else ""
        raise ProtocolError(name[:_NAME_LIMIT], header[0])
    if type(header) is not list or len(header) != len(_HEADER_TYPES):
        raise DecodeError("header is not that of a surreal_like message")
    if tuple(map(type, header)) != _HEADER_TYPES:
        raise DecodeError("header holds values of wrong types")
    return tuple(header[1:])


def _arrays(manifest: list[Any], buffers: Sequence[Buffer]) -> dict[str, Array]:
    """Name -> read-only view on the buffer of its own, or on its part of the one for all."""
    joined = len(buffers) == 1 < len(manifest)
    if len(manifest) != len(buffers) and not joined:
        raise DecodeError(f"manifest of {len(manifest)} arrays, {len(buffers)} buffers came")
    arrays: dict[str, Array] = {}
    offset = 0
    for number, entry in enumerate(manifest):
        name, dtype, shape = _described(entry)
        size = math.prod(shape) * dtype.itemsize
        buffer: Any = buffers[0 if joined else number]
        if joined:
            size += -size % _ALIGNMENT_BYTES
        if offset + size > len(buffer) or (not joined and size != len(buffer)):
            wrong = f"{shape} of {dtype.str!r} is not {len(buffer) - offset} bytes"
            raise DecodeError(f"array {name[:80]!r}: {wrong}")
        try:
            array: Array = np.ndarray(shape, dtype, buffer, offset)
        except (ValueError, TypeError) as error:
            # An empty array may still claim a length that numpy cannot index.
            raise DecodeError(f"array {name[:80]!r}: {error}") from None
        array.setflags(write=False)
        arrays[name] = array
        offset += size if joined else 0
    if joined and offset != len(buffers[0]):
        raise DecodeError(f"arrays of {offset} bytes, {len(buffers[0])} came")
    return arrays


def _described(entry: Any) -> tuple[str, np.dtype[Any], list[int]]:
    """Name, dtype and shape of an entry of the manifest."""
    # An entry is shown only once its types are known: the text of a hostile one may have no end.
    if type(entry) is not list or len(entry) != _ENTRY_LENGTH:
        raise DecodeError("a manifest entry is not a name, a dtype and a shape")
    name, dtype_text, shape = entry
    if type(name) is not str or type(dtype_text) is not str or type(shape) is not list:
        raise DecodeError("a manifest entry is not a name, a dtype and a shape")
    if len(shape) > _DIMENSIONS_LIMIT or not _is_shape(shape):
        raise DecodeError(f"array {name[:80]!r} has a shape that is none")
    dtype = _DTYPES.get(dtype_text)
    if dtype is None:
        raise DecodeError(f"array {name[:80]!r} has the dtype {dtype_text[:8]!r}")
    return name, dtype, shape


def _is_shape(sizes: list[Any]) -> bool:
    # A loop: a generator costs more than all the rest of an array.
    for size in sizes:  # noqa: SIM110
        if type(size) is not int or size < 0:
            return False
    return True
