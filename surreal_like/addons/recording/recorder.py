"""Writes down the chunks that a replay shard accepts, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from session.errors import describe
from session.process.context import Context
from session.wire import Message
from session.wire.codec import Buffer, encode, size_bytes
from surreal_like.addons.recording.about import describe_shard
from surreal_like.addons.recording.segments import Kind, SegmentWriter, list_segments, name_segment
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay

# Bytes that may wait for the disk.
AHEAD_BYTES = 64 << 20
SEGMENT_BYTES = 64 << 20
# A recording has at least so many segments before the oldest goes.
_LEAST_SEGMENTS = 4
# Longest time for which an ack waits for the disk.
_FLUSH_SECONDS = 1.0
_CLOSE_SECONDS = 10.0


class _Waiting(NamedTuple):
    """A record that waits for the disk."""

    kind: Kind
    number: int
    time: float
    frames: Sequence[Buffer]
    size_bytes: int


class Recorder:
    """Appends records to the segments of one shard, in their order; a slow disk delays nobody.

    Acks wait until the chunks that they are for are in the file, so that a recording has all that
    was acked, and a kill loses nothing of it. If the disk is too slow, or full, rows go on without
    it: the recording ends with an event.

    Args:
        context: context of the shard.
        replay: the replay of the shard, after what it restores.
        goes_on: True if it goes on with all rows of the process before.
        limit_bytes: most bytes of its segments.

    Attributes:
        stopped: True once nothing is recorded any more.
    """

    def __init__(
        self, context: Context, replay: Replay, *, goes_on: bool, limit_bytes: float
    ) -> None:
        assert context.folder is not None  # the hook has looked
        self.stopped = False
        self._context, self._replay = context, replay
        self._folder: Path = context.folder.recording / context.name
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(SEGMENT_BYTES, limit_bytes / _LEAST_SEGMENTS)
        self._about = encode(describe_shard(context))
        # Of records that hold nothing but a number.
        self._own = encode(Message("shard", sender=context.wire.identity))
        self._number = 0
        self._number = self._next_number()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._writing = self._closing = self._late = False
        # What stopped it, and the first row that is not in it.
        self._error, self._missing = "", 0
        # Its oldest part was removed; that was reported.
        self._full = self._full_reported = False
        self._writer: SegmentWriter | None = None
        self._sealed: list[tuple[Path, int]] = []
        self._put(Kind.GO_ON if goes_on else Kind.BEGIN, self._own)
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()

    def _next_number(self) -> int:
        # A replay that counts no rows removes none, either.
        return int(self._replay.statistics().get("inserted", self._number))

    # -- called by the shard ----------------------------------------------------------------------

    def accept(self, chunk: Chunk, frames: Sequence[Buffer]) -> None:
        """Writes down a chunk that was inserted.

        Args:
            chunk: the chunk.
            frames: frames of its message, as received.
        """
        if not self.stopped:
            self._put(Kind.CHUNK, frames)
            self._number += chunk.size

    def cut(self) -> None:
        """Notes that the replay has removed rows that came late."""
        self._number = self._next_number()
        self._put(Kind.CUT, self._own)

    def flush(self) -> None:
        """Waits until all is in the file, unless the disk is too slow; reports what went wrong."""
        with self._changed:
            if not self._late:
                self._late = not self._changed.wait_for(self._is_idle, _FLUSH_SECONDS)
            elif self._is_idle():
                self._late = False
        self._report()

    def close(self) -> None:
        """Writes the rest, with a deadline."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        self._report()

    def _is_idle(self) -> bool:
        return self.stopped or bool(self._error) or not (self._waiting or self._writing)

    def _put(self, kind: Kind, frames: Sequence[Buffer]) -> None:
        size = size_bytes(frames)
        with self._changed:
            if self._error or self.stopped:
                return
            if self._waiting and self._waiting_bytes + size > AHEAD_BYTES:
                self._fail(
                    f"the disk is too slow: {AHEAD_BYTES >> 20} MiB wait for it", self._number
                )
                return
            now = self._context.clock.time()
            self._waiting.append(_Waiting(kind, self._number, now, frames, size))
            self._waiting_bytes += size
            self._changed.notify_all()

    def _report(self) -> None:
        if self._full and not self._full_reported:
            self._full_reported = True
            self._context.event("recording_full", "its oldest part makes room for new rows")
        if self._error and not self.stopped:
            self.stopped = True
            last = f"row {self._missing:,} and later ones are not in it"
            self._context.event("recording_stopped", f"{self._error}; {last}")

    def _fail(self, error: str, missing: int) -> None:
        """Ends the recording; called with the lock."""
        if not self._error:
            self._error, self._missing = error, missing

    # -- the thread -------------------------------------------------------------------------------

    def _write_all(self) -> None:
        number = self._number
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._sealed = [(path, path.stat().st_size) for path in list_segments(self._folder)]
            while (record := self._take()) is not None:
                number = record.number
                self._write(record)
        except OSError as error:
            with self._changed:
                self._fail(describe(error), number)
                self._waiting.clear()
                self._writing = False
                self._changed.notify_all()
        finally:
            if self._writer is not None:
                self._writer.close()

    def _take(self) -> _Waiting | None:
        """Returns the next record; None once all are written and no other comes."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            record = self._waiting.popleft()
            self._waiting_bytes -= record.size_bytes
            self._writing = True
            return record

    def _write(self, record: _Waiting) -> None:
        if self._writer is not None and self._writer.size_bytes >= self._segment_bytes:
            self._writer.close()
            self._sealed.append((self._writer.path, self._writer.size_bytes))
            self._writer = None
            self._make_room()
        if self._writer is None:
            number = int(self._sealed[-1][0].stem) + 1 if self._sealed else 0
            self._writer = SegmentWriter(name_segment(self._folder, number))
            self._writer.append(Kind.ABOUT, record.number, record.time, self._about)
        self._writer.append(*record[:4])

    def _make_room(self) -> None:
        size = sum(size for _, size in self._sealed) + self._segment_bytes
        while size > self._limit_bytes and len(self._sealed) > 1:
            path, gone = self._sealed.pop(0)
            path.unlink(missing_ok=True)
            size -= gone
            self._full = True
