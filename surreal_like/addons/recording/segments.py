"""Segments, the files of a recording: messages as they came, each with a checksum.

A segment begins with eight bytes, the name of the format and its number. Records follow: 32 bytes
of numbers with a checksum of their own, the lengths of the frames, and the frames of one encoded
message. All are padded to eight bytes, so that the arrays of a mapped file are aligned.
"""

from __future__ import annotations

import enum
import math
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from session.errors import DecodeError, SurrealError
from session.wire.codec import Message, decode

FORMAT = 1
SUFFIX = ".seg"
_NAME = b"SLREC"
_BEGIN = struct.Struct("<5sHx")
# Checksum of all that follows it; numbers; checksum of these.
_HEAD = struct.Struct("<I24sI")
# Bytes after the head; row; time; number of frames; kind.
_NUMBERS = struct.Struct("<IQdHH")
_CHECKSUM = struct.Struct("<I")
_ALIGNMENT_BYTES = 8
_LENGTH = np.dtype("<u4")
# Of one call of the system: writev(2).
_MOST_BUFFERS = 1000
SEGMENT_BYTES = 64 << 20
# A folder has at least so many segments before the oldest goes.
_LEAST_SEGMENTS = 4


class Kind(enum.IntEnum):
    """Kind of a record."""

    ABOUT = 0
    """Run, shard and specs: the first record of each segment."""
    BEGIN = 1
    """A process of the shard begins; it may lack rows that were accepted before."""
    GO_ON = 2
    """A process of the shard begins with all rows below the number of this record."""
    CUT = 3
    """The rows from the number of this record on were removed, because updates were bad."""
    CHUNK = 4
    """An accepted chunk."""
    START = 5
    """A learner begins, with the state in the folder of its number."""
    BATCHES = 6
    """Batches that a learner has taken; the number is that of the updates before the first."""
    HASH = 7
    """Hash of the parameters and optimizers before the update of this number."""


class Head(NamedTuple):
    """Numbers of a record.

    Args:
        at: place of the record in the file [bytes].
        end: place after it.
        kind: what it is.
        number: number of its first row, or of the next row that comes.
        time: wall clock [s].
        frames: number of frames.
        checksum: CRC-32 of all that follows it in the record.
    """

    at: int
    end: int
    kind: Kind
    number: int
    time: float
    frames: int
    checksum: int


class Record(NamedTuple):
    """A record that is to be written.

    Args:
        kind, number, time: see :class:`Head`.
        frames: frames of an encoded message.
    """

    kind: Kind
    number: int
    time: float
    frames: Sequence[Any]


class Damage(NamedTuple):
    """A part of a segment that is left out.

    Args:
        path: the file.
        reason: what is wrong with it, and where.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class SegmentWriter:
    """Appends records to a new segment.

    Args:
        path: the file; it must not exist.

    Attributes:
        path: the same.
        size_bytes: bytes of the whole records that were written.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self.size_bytes = 0
        try:
            self._write([_BEGIN.pack(_NAME, FORMAT)])
        except OSError:
            self.close()
            raise

    def append(self, records: Sequence[Record]) -> None:
        """Appends records.

        Raises:
            OSError: they were not written; the file ends with the record before them.
        """
        buffers: list[Any] = []
        for kind, number, time, frames in records:
            begin = len(buffers)
            buffers.append(np.array([len(each) for each in frames], _LENGTH).tobytes())
            buffers += frames
            size = 0
            for at in range(begin, len(buffers)):
                length = len(buffers[at])
                if missing := -length % _ALIGNMENT_BYTES:
                    buffers[at] = bytes(buffers[at]) + bytes(missing)
                size += length + missing
            numbers = _NUMBERS.pack(size, number, time, len(frames), kind)
            head = _HEAD.pack(0, numbers, zlib.crc32(numbers))[_CHECKSUM.size :]
            checksum = zlib.crc32(head)
            for each in buffers[begin:]:
                checksum = zlib.crc32(each, checksum)
            buffers.insert(begin, _CHECKSUM.pack(checksum) + head)
        self._write(buffers)

    def _write(self, buffers: Sequence[Any]) -> None:
        try:
            size = 0
            for begin in range(0, len(buffers), _MOST_BUFFERS):
                size += self._write_part(buffers[begin : begin + _MOST_BUFFERS])
        except OSError:
            os.ftruncate(self._file, self.size_bytes)
            raise
        self.size_bytes += size

    def _write_part(self, buffers: Sequence[Any]) -> int:
        size = sum(map(len, buffers))
        written = os.writev(self._file, buffers)
        while written < size:
            # Rare: a disk that is almost full, or a signal.
            written += os.write(self._file, b"".join(map(bytes, buffers))[written:])
        return size

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


class SegmentedWriter:
    """Appends records to the segments of a folder; where one is full, the next one begins.

    Args:
        folder: the folder, which is made if it is missing.
        about: frames of the first record of each segment.
        limit_bytes: most bytes of all segments of the folder; the oldest makes room.

    Attributes:
        removed: True once a segment has made room.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, folder: Path, about: Sequence[Any], limit_bytes: float = math.inf) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.removed = False
        self._folder, self._about, self._limit_bytes = folder, about, limit_bytes
        self._segment_bytes = min(SEGMENT_BYTES, limit_bytes / _LEAST_SEGMENTS)
        self._sealed = [(path, path.stat().st_size) for path in list_segments(folder)]
        self._writer: SegmentWriter | None = None

    @property
    def room_bytes(self) -> float:
        """Bytes that fit into the segment of the next records."""
        size = 0 if self._writer is None else self._writer.size_bytes
        return self._segment_bytes - (size if size < self._segment_bytes else 0)

    def append(self, records: Sequence[Record]) -> None:
        """Appends one or more records to one segment.

        Raises:
            OSError: they were not written.
        """
        if self._writer is not None and self._writer.size_bytes >= self._segment_bytes:
            self.close()
        if self._writer is None:
            self._make_room()
            number = int(self._sealed[-1][0].stem) + 1 if self._sealed else 0
            self._writer = SegmentWriter(name_segment(self._folder, number))
            first = records[0]
            records = [Record(Kind.ABOUT, first.number, first.time, self._about), *records]
        self._writer.append(records)

    def _make_room(self) -> None:
        size = sum(size for _, size in self._sealed) + self._segment_bytes
        while size > self._limit_bytes and len(self._sealed) > 1:
            path, gone = self._sealed.pop(0)
            path.unlink(missing_ok=True)
            size -= gone
            self.removed = True

    def close(self) -> None:
        """Closes the file; records that are appended later begin the next segment."""
        if self._writer is not None:
            self._writer.close()
            self._sealed.append((self._writer.path, self._writer.size_bytes))
            self._writer = None


class SegmentError(SurrealError):
    """A segment is of a format that this version does not read."""


class Segment:
    """Reads a segment, which stays mapped as long as an array of it is used.

    Args:
        path: the file.

    Attributes:
        path: the same.
        heads: numbers of all records.
        damage: what follows them and cannot be read; None: nothing.

    Raises:
        SegmentError: it is of another format; names both.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heads: list[Head] = []
        self.damage: Damage | None = None
        with path.open("rb") as file:
            begin = file.read(_BEGIN.size)
            if len(begin) < _BEGIN.size or not begin.startswith(_NAME):
                # After a loss of power the newest file may be short, or hold zeros.
                self._data = memoryview(b"")
                self.damage = Damage(path, "is no segment of a recording: it is left out")
                return
            number = _BEGIN.unpack(begin)[1]
            if number != FORMAT:
                raise SegmentError(
                    f"{path} has format {number} of recordings, this version reads {FORMAT}"
                )
            self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._read_heads()

    def _read_heads(self) -> None:
        at = _BEGIN.size
        while at < len(self._data):
            head = self._read_head(at)
            if isinstance(head, str):
                where = f"record {len(self.heads) + 1:,} at byte {at:,}"
                reason = f"{where} {head}: it and what follows is left out"
                self.damage = Damage(self.path, reason)
                return
            self.heads.append(head)
            at = head.end

    def _read_head(self, at: int) -> Head | str:
        """Returns the numbers of the record at a place, or what is wrong with it."""
        end, size = at + _HEAD.size, len(self._data)
        if end > size:
            return "is cut"
        checksum, packed, of_numbers = _HEAD.unpack_from(self._data, at)
        if zlib.crc32(packed) != of_numbers:
            return "has wrong numbers"
        length, number, time, frames, kind = _NUMBERS.unpack(packed)
        if end + length > size:
            return "is cut"
        if kind >= len(Kind):
            return f"is of the unknown kind {kind}"
        return Head(at, end + length, Kind(kind), number, time, frames, checksum)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self._data)

    def read(self, head: Head) -> Message | Damage:
        """Returns the message of a record, whose arrays are views on the file.

        Args:
            head: one of :attr:`heads`.
        """
        data = self._data[head.at : head.end]
        reason = "does not have its checksum"
        if zlib.crc32(data[_CHECKSUM.size :]) == head.checksum:
            try:
                return decode(_part(data[_HEAD.size :], head.frames), len(data))
            except DecodeError as error:
                reason = f"cannot be read: {error}"
        where = f"record {self.heads.index(head) + 1:,} at byte {head.at:,}"
        return Damage(self.path, f"{where}, row {head.number:,}, {reason}: it is left out")


def _part(data: memoryview, count: int) -> list[memoryview]:
    """Returns the frames of a record, without their padding."""
    if count * _LENGTH.itemsize > len(data):
        raise DecodeError(f"{count} frames in {len(data)} bytes")
    frames = []
    lengths = np.frombuffer(data, _LENGTH, count).tolist()
    at = _pad(count * _LENGTH.itemsize)
    for length in lengths:
        frames.append(data[at : at + length])
        at += _pad(length)
    return frames


def _pad(length: int) -> int:
    return length + -length % _ALIGNMENT_BYTES


def list_segments(folder: Path) -> list[Path]:
    """Returns the segments in the folder of a shard, the oldest first."""
    found = folder.glob(f"*{SUFFIX}")
    return sorted(path for path in found if path.stem.isascii() and path.stem.isdecimal())


def name_segment(folder: Path, number: int) -> Path:
    """Returns the path of a segment by its number."""
    return folder / f"{number:06}{SUFFIX}"
