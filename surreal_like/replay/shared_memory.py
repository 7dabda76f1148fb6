"""Large batches by shared memory: a learner lends it to the replay servers on its machine.

A batch of frames that goes through a socket is copied three times more than needed. So the learner
creates an anonymous file in memory and names in each request the slot for its answer; the server
gathers large columns directly into that slot. Where this is not possible (another machine, another
user, no such memory), the answer goes through the socket as usual.

The file belongs to the learner alone: it vanishes with the learner, however that ends. The server
checks a file before it writes to it, because its path comes out of a message.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import DecodeError
from session.nest import Array
from session.wire.codec import DTYPES, pack_layout, unpack_layout

# Smaller columns are sent: that costs less than touching a page for the first time.
LEAST_BYTES = 1 << 16
# A smaller answer fits whole into the buffers of the socket.
ANSWER_BYTES = 1 << 20
HERE = sys.platform == "linux"

_NAME = "surreal-like-batches"
_TOKEN_BYTES = 16
_ALIGNMENT = 4096
_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if HERE else 0
_KEPT = 16


def large_bytes(columns: Mapping[str, Array]) -> int:
    """Room in a slot that the large ones of some columns take."""
    return sum(_room(each.nbytes) for each in columns.values() if each.nbytes >= LEAST_BYTES)


def _room(size: int) -> int:
    return size + -size % _ALIGNMENT


class Slab:
    """Memory that a learner lends for the answers of one server.

    Args:
        slots: answers that it holds at once.
        slot_bytes: room for the large columns of one.

    Raises:
        OSError: there is no such memory.
    """

    def __init__(self, slots: int, slot_bytes: int) -> None:
        self.slot_bytes = _room(slot_bytes)
        size = _ALIGNMENT + slots * self.slot_bytes
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._free = list(range(slots))
        self._file = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Reserved now, so that a lack of memory is an error here and not at the first write.
            os.posix_fallocate(self._file, 0, size)
            # Servers only open files that can neither shrink nor grow.
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, _FIXED)
            self._memory = mmap.mmap(self._file, size)
        except BaseException:
            os.close(self._file)
            raise
        # A server compares the token, because the path in a message may lead to another file.
        self._memory[:_TOKEN_BYTES] = self._token
        self._close = weakref.finalize(self, os.close, self._file)

    def lend(self) -> tuple[int, dict[str, Any]] | None:
        """Lends a free slot: its number, and its field in the request; None if none is free."""
        if not self._free:
            return None
        slot = self._free.pop()
        place = [os.getpid(), self._file, self._token, self._begin(slot), self.slot_bytes]
        return slot, {"slab": place}

    def _begin(self, slot: int) -> int:
        return _ALIGNMENT + slot * self.slot_bytes

    def give_back(self, slot: int) -> None:
        """Frees a slot, when its answer is not needed any more."""
        self._free.append(slot)

    def columns(self, slot: int, placed: Any) -> dict[str, Array]:
        """Returns the columns that the server wrote into a slot, as read-only views.

        Args:
            slot: slot of the request.
            placed: the field ``placed`` of the answer.

        Raises:
            DecodeError: the field does not describe columns in this slot.
        """
        part = memoryview(self._memory).toreadonly()[self._begin(slot) :][: self.slot_bytes]
        columns: dict[str, Array] = {}
        try:
            packed, offsets = placed
            for place, offset in zip(unpack_layout(packed).places, offsets, strict=True):
                if not 0 <= offset <= self.slot_bytes:
                    raise ValueError(f"offset {offset}")
                columns[place.name] = np.ndarray(place.shape, place.dtype, part, offset)
        except (TypeError, ValueError) as error:
            raise DecodeError(f"columns that are not in their slot: {error}") from None
        return columns

    def close(self) -> None:
        """Closes the file: no server can open it any more; existing views stay valid."""
        self._close()


class Part:
    """Slot of shared memory, in the server, for the large columns of one answer.

    Args:
        memory: memory of the slot.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._at = 0
        self._placed: dict[int, int] = {}  # address of an array -> its offset

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Creates an array as numpy does: in shared memory if it is large and there is room."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size < LEAST_BYTES or self._at + size > len(self._memory):
            return np.empty(shape, dtype)
        array: Array = np.ndarray(shape, dtype, self._memory, self._at)
        self._placed[array.ctypes.data] = self._at
        self._at += _room(size)
        return array

    def place(self, columns: Mapping[str, Array]) -> tuple[dict[str, Array], list[Any]]:
        """Copies large columns that are not yet in the shared memory into it.

        Returns:
            The columns that are left to send, and the answer's field ``placed``.
        """
        left, entries, offsets = dict(columns), [], []
        for name, column in columns.items():
            text = column.dtype.str
            if column.nbytes < LEAST_BYTES or text not in DTYPES:
                continue
            offset = self._offset(column)
            if offset is not None:
                entries.append((name, text, column.shape))
                offsets.append(offset)
                del left[name]
        return left, [pack_layout(tuple(entries))[0], offsets]

    def _offset(self, column: Array) -> int | None:
        """Returns the offset of a column, or of a copy made here; None if there is no room."""
        if column.ctypes.data in self._placed and column.flags.c_contiguous:
            return self._placed[column.ctypes.data]
        copy = self.empty(column.shape, column.dtype)
        copy[...] = column
        return self._placed.get(copy.ctypes.data)


class Slabs:
    """Shared memory of learners that the server has opened, by token."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, mmap.mmap | None]] = {}

    def part(self, fields: Mapping[str, Any]) -> Part | None:
        """Returns the slot for the answer of a request; None if it goes through the socket."""
        place = fields.get("slab")
        if not HERE or place is None:
            return None
        process, file, token, begin, size = place
        memory = self._memory(f"/proc/{process}/fd/{file}", token)
        # The first page holds the token; a slot must lie in the rest.
        if memory is None or begin < _ALIGNMENT or begin + size > len(memory):
            return None
        return Part(memoryview(memory)[begin : begin + size])

    def _memory(self, path: str, token: bytes) -> mmap.mmap | None:
        if token not in self._known:
            # Memory closed by its learner only takes room; another file may have its number now.
            self._known = {
                known: (place, memory)
                for known, (place, memory) in self._known.items()
                if place != path and os.path.lexists(place)
            }
            if len(self._known) >= _KEPT:
                return None
            self._known[token] = (path, _open(path, token))
        return self._known[token][1]


def _open(path: str, token: bytes) -> mmap.mmap | None:
    """Maps a learner's memory; None if the file is not one: no other file is written to."""
    try:
        if os.readlink(path) != f"/memfd:{_NAME} (deleted)":
            return None
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A file that could still shrink could end this process during a write (SIGBUS).
        seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)
        if os.fstat(opened).st_uid != os.geteuid() or seals & _FIXED != _FIXED:
            return None
        memory = mmap.mmap(opened, 0)
        return memory if memory[:_TOKEN_BYTES] == token else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)
