"""A journal: segments that a thread appends to, so that a slow disk delays nobody."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from session.errors import describe
from session.process.context import Context
from session.wire import Message
from session.wire.codec import encode, size_bytes
from surreal_like.addons.recording.segments import (
    Kind,
    SegmentWriter,
    list_segments,
    name_segment,
)

# Bytes that may wait for the disk.
AHEAD_BYTES = 64 << 20
SEGMENT_BYTES = 64 << 20
# A journal has at least so many segments before the oldest goes.
_LEAST_SEGMENTS = 4
# Longest time for which a process waits for the disk.
_FLUSH_SECONDS = 1.0
_CLOSE_SECONDS = 10.0


class _Waiting(NamedTuple):
    """A record that waits for the disk."""

    kind: Kind
    number: int
    time: float
    frames: Sequence[Any]
    size_bytes: int


class Journal:
    """Appends records to new segments of a folder, in their order.

    If the disk is too slow, or full, the journal ends with an event, and its owner goes on.

    Args:
        context: context of the process.
        folder: the folder.
        about: first record of each segment.
        limit_bytes: most bytes of all segments; the oldest makes room for new records.
        number: number of the next record, for the event of an early end.

    Attributes:
        stopped: True once nothing is written any more.
        number: the same; set by its owner.
    """

    def __init__(
        self, context: Context, folder: Path, about: Message, *, limit_bytes: float, number: int = 0
    ) -> None:
        self.stopped = False
        self.number = number
        self._context, self._folder = context, folder
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(SEGMENT_BYTES, limit_bytes / _LEAST_SEGMENTS)
        about.sender = context.wire.identity
        self._about = encode(about)
        # Of records that hold nothing but a number.
        self._own = encode(Message("own", sender=context.wire.identity))
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._writing = self._closing = self._late = False
        # What stopped it, and the number of the first record that is not in it.
        self._error, self._missing = "", 0
        self._full = False
        self._writer: SegmentWriter | None = None
        self._sealed: list[tuple[Path, int]] = []
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def put(self, kind: Kind, frames: Sequence[Any] = ()) -> None:
        """Adds a record, with the present number.

        Args:
            kind: what it is.
            frames: frames of an encoded message, which must not change; empty: only the number.
        """
        frames = frames or self._own
        size = size_bytes(frames)
        with self._changed:
            if self._error or self.stopped:
                return
            if self._waiting and self._waiting_bytes + size > AHEAD_BYTES:
                reason = f"the disk is too slow: {AHEAD_BYTES >> 20} MiB wait for it"
                self._fail(reason, self.number)
                return
            now = self._context.clock.time()
            self._waiting.append(_Waiting(kind, self.number, now, frames, size))
            self._waiting_bytes += size
            self._changed.notify_all()

    def flush(self) -> None:
        """Waits until all is in the file, unless the disk is too slow; reports what went wrong."""
        with self._changed:
            if not self._late:
                self._late = not self._changed.wait_for(self._is_idle, _FLUSH_SECONDS)
            elif self._is_idle():
                self._late = False
        self.report()

    def close(self) -> None:
        """Writes the rest, with a deadline."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        self.report()

    def _is_idle(self) -> bool:
        return self.stopped or bool(self._error) or not (self._waiting or self._writing)

    def report(self) -> None:
        """Reports what the thread has met."""
        place = self._folder.name
        if self._full:
            self._full = False
            self._context.event(
                "recording_full", f"{place}: its oldest part makes room for new rows"
            )
        if self._error and not self.stopped:
            self.stopped = True
            last = f"{self._missing:,} and later ones are not in it"
            self._context.event("recording_stopped", f"{place}: {self._error}; {last}")

    def _fail(self, error: str, missing: int) -> None:
        """Ends the journal; called with the lock."""
        if not self._error:
            self._error, self._missing = error, missing

    # -- the thread -------------------------------------------------------------------------------

    def _write_all(self) -> None:
        number = self.number
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
