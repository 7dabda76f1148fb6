"""Layout of the arrays of a message: names, dtypes and shapes, packed for the header.

A component uses the same few layouts repeatedly, so the newest are cached: building the layout of
eight arrays takes longer than copying a batch of them. Several small arrays are stored one after
the other in one buffer, each at a multiple of 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack
import numpy as np

from session.errors import DecodeError
from session.nest import Array

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
def pack(entries: Entries) -> tuple[bytes, Layout]:
    """Returns a layout packed for a header, and the same as a Layout."""
    return msgpack.packb(entries, use_bin_type=True), _lay_out(entries)


def unpack(packed: bytes) -> Layout:
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
