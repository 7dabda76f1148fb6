"""Where the arrays of a message lie: their names, dtypes and shapes, packed for the header.

A component sends and receives the same few layouts over and over, so the newest are kept: it takes
longer to describe eight arrays anew than to copy a batch of them. Several arrays that are small
together lie behind each other in one buffer, each at a multiple of eight bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
import numpy as np
import zmq

from session.errors import DecodeError
from session.nest import Array

Buffer = bytes | memoryview | zmq.Frame
# (name, dtype as numpy spells it, shape) of each array
Entries = tuple[tuple[str, str, tuple[int, ...]], ...]

_ENTRY_LENGTH = 3
_ALIGNMENT_BYTES = 8
_DIMENSIONS_LIMIT = 16
_LAYOUTS_KEPT = 256
# A longer one is read anew each time: what others send must not fill the memory.
_KEPT_BYTES = 4096
# An array in a header reserves its memory before its entries are read.
ARRAY_LIMIT = 1 << 16
DTYPES = {
    text: np.dtype(text)
    for text in (*("|b1", "|i1", "|u1"), *(f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)))
} | {f"<f{size}": np.dtype(f"<f{size}") for size in (2, 4, 8)}


class FrameSlice(NamedTuple):
    """One array: ``size`` bytes, at ``offset`` where all share one buffer."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    offset: int


class Layout(NamedTuple):
    """All arrays of a message, ``size`` bytes where they share one buffer."""

    places: tuple[FrameSlice, ...]
    size: int

    def arrays(self, buffers: Sequence[Buffer]) -> dict[str, Array]:
        """Name -> read-only view on the buffer of its own, or on its part of the one for all.

        Raises:
            DecodeError: these are not the buffers of this layout.
        """
        if len(buffers) == 1 < len(self.places):
            return self._shared(_read_only(buffers[0]))
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

    def _shared(self, buffer: memoryview) -> dict[str, Array]:
        if self.size != len(buffer):
            raise DecodeError(f"arrays of {self.size} bytes, {len(buffer)} came")
        return {
            name: np.ndarray(shape, dtype, buffer, offset)
            for name, dtype, shape, _, offset in self.places
        }

    def joined(self, arrays: Sequence[Array]) -> bytes:
        """The arrays, contiguous ones, in one buffer for all."""
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
    """A layout as it stands in a header, and as it is used here."""
    return msgpack.packb(entries, use_bin_type=True), _lay_out(entries)


def unpack(packed: bytes) -> Layout:
    """The layout that a header holds.

    Raises:
        DecodeError: it is none.
    """
    return _unpack_kept(packed) if len(packed) <= _KEPT_BYTES else _unpack(packed)


def _unpack(packed: bytes) -> Layout:
    try:
        entries = msgpack.unpackb(packed, raw=False, max_array_len=ARRAY_LIMIT)
    except (ValueError, TypeError, RecursionError, MemoryError, msgpack.UnpackException) as error:
        raise DecodeError(f"layout does not decode: {error}") from None
    if type(entries) is not list:
        raise DecodeError("layout is not a list of arrays")
    return _lay_out([_described(entry) for entry in entries])


_unpack_kept = lru_cache(maxsize=_LAYOUTS_KEPT)(_unpack)


def _described(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    """An entry that others sent, once its types are known."""
    # It is shown only then: the text of a hostile one may have no end.
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
        # An empty one may still claim a length that numpy cannot index.
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
