"""Memory of a replay shard that outlives its process: arrays, and one committed state.

A launcher holds an anonymous file in memory for each shard, which the shard maps. Its pages belong
to the kernel: a process that is killed loses nothing that it has stored there, so neither a flush
nor a checksum of the rows is needed. Only the order of the stores counts:

1. the number of the oldest row rises before rows are overwritten;
2. columns, links and priorities of new rows are written;
3. :meth:`KeptMemory.commit` writes the state (how many rows there are, and all accounts) into the
   one of two areas that is not valid, then a single word that names it;
4. only then are the rows acked.

After a kill between any two stores the word names a whole state, and all rows that it counts are
there. Rows behind them were never acked: their senders send them again.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from session.errors import UsageError
from session.nest import Array

# Creates an array of zeros by name, shape and dtype; or returns what a former process left there.
Zeros = Callable[[str, tuple[int, ...], npt.DTypeLike], Array]

_MAGIC = int.from_bytes(b"slreplay", "little")
_LAYOUT = 1
# Words of the first page.
_IS, _VERSION, _COMMITTED = 0, 1, 2
_PAGE = 4096
_HUGE_PAGE = 1 << 21
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_LEAST_AREA = 1 << 16
_HEAD = struct.Struct("<QQ")  # bytes of a state, its CRC32


def is_slower(row_bytes: int) -> bool:
    """Returns True if arrays with rows of this size are read more slowly in such memory.

    The kernel gives no huge pages to shared memory unless it was set up to do so, and a row of a
    page or more then needs new entries of the processor's address tables each time.
    """
    if row_bytes < _PAGE:
        return False
    with suppress(OSError):
        return any(f"[{each}]" in _HUGE_PAGES.read_text() for each in ("never", "deny"))
    return True


def new_zeros(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Creates an array in the memory of this process alone."""
    return np.zeros(shape, dtype)


class KeptMemory:
    """A file in memory, with arrays and a committed state.

    Args:
        path: the file; only one process at a time can use it.
        about: what the content is about, as plain values; content about something else is removed.

    Attributes:
        committed: the state that a former process has committed; None: there is none.

    Raises:
        OSError: there is no such file, or no memory.
        UsageError: another process uses it.
    """

    def __init__(self, path: str, about: Mapping[str, Any]) -> None:
        self._about = dict(about)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # Of the process: a component of a serial run starts again in the same one.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._end = max(os.fstat(self._file).st_size, _PAGE)
            # A file system of a fixed size would end the process at a page that it has no room for.
            self._limited = os.fstatvfs(self._file).f_blocks > 0
            self._grow(self._end)
            self._words: npt.NDArray[np.uint64] = self._map(0, (_PAGE // 8,), np.dtype(np.uint64))
            # Packed, until it changes.
            self._layout = b""
            self._areas: list[tuple[int, int]] = []
            self._arrays: dict[str, tuple[int, str, tuple[int, ...]]] = {}
            self.committed = self._read()
        except BlockingIOError:
            os.close(self._file)
            raise UsageError(f"{path}: another process uses this memory") from None
        except BaseException:
            os.close(self._file)
            raise

    def _read(self) -> dict[str, Any] | None:
        """Returns the committed state; removes everything if there is none that is whole."""
        packed = self._read_packed()
        if packed is not None:
            parts = msgpack.Unpacker(use_list=False)
            parts.feed(packed)
            layout, state = parts
            if layout["about"] == self._about:
                self._areas, self._arrays = list(layout["areas"]), dict(layout["arrays"])
                found: dict[str, Any] = state
                return found
        self.clear()
        return None

    def _read_packed(self) -> bytes | None:
        place = int(self._words[_COMMITTED])
        known = (self._words[_IS], self._words[_VERSION]) == (_MAGIC, _LAYOUT)
        if not known or not _PAGE <= place <= self._end - _HEAD.size:
            return None
        size, checksum = _HEAD.unpack(os.pread(self._file, _HEAD.size, place))
        if not 0 < size <= self._end - place:
            return None
        packed = os.pread(self._file, size, place + _HEAD.size)
        return packed if zlib.crc32(packed) == checksum else None

    def clear(self) -> None:
        """Removes all content."""
        self._words[_COMMITTED] = 0
        os.ftruncate(self._file, _PAGE)
        self._end = _PAGE
        self._areas, self._arrays, self._layout = [], {}, b""
        self.committed = None
        self._words[_VERSION], self._words[_IS] = _LAYOUT, _MAGIC

    def zeros(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Returns the array of a name, with what is in it; zeros if it is new or of another form.

        Raises:
            OSError: there is no memory for it.
        """
        dtype = np.dtype(dtype)
        known = self._arrays.get(name)
        if known is None or known[1:] != (dtype.str, shape):
            place = self._reserve(math.prod(shape) * dtype.itemsize)
            known = self._arrays[name] = (place, dtype.str, shape)
            self._layout = b""
        return self._map(known[0], shape, dtype)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Makes this the committed state, of plain values; a kill leaves it or the one before."""
        values = msgpack.packb(state)
        packed = self._pack_layout() + values
        # Half, because the layout has the places of the areas, too.
        if not self._areas or len(packed) > self._areas[0][1] // 2:
            size = max(_LEAST_AREA, 4 * len(packed))
            self._areas, self._layout = [(self._reserve(size), size) for _ in range(2)], b""
            packed = self._pack_layout() + values
        valid = self._words[_COMMITTED]
        place = next(area for area, _ in self._areas if area != valid)
        os.pwrite(self._file, _HEAD.pack(len(packed), zlib.crc32(packed)) + packed, place)
        self._words[_COMMITTED] = place

    def _pack_layout(self) -> bytes:
        if not self._layout:
            layout = {"about": self._about, "arrays": self._arrays, "areas": self._areas}
            self._layout = msgpack.packb(layout)
        return self._layout

    def _reserve(self, size: int) -> int:
        """Returns the place of so many new bytes, all 0."""
        # Whole huge pages, so that large arrays can lie in them.
        unit = _HUGE_PAGE if size >= _HUGE_PAGE else _PAGE
        place = self._end + -self._end % unit
        self._end = place + size + -size % _PAGE
        self._grow(self._end)
        return place

    def _grow(self, size: int) -> None:
        if self._limited:
            os.posix_fallocate(self._file, 0, size)
        elif size > os.fstat(self._file).st_size:
            os.ftruncate(self._file, size)

    def _map(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        memory = mmap.mmap(self._file, max(size, 1), offset=place)
        if size >= _HUGE_PAGE:
            with suppress(OSError):
                memory.madvise(mmap.MADV_HUGEPAGE)
        return np.ndarray(shape, dtype, memory)
