"""A journal: segments that a thread appends to, so that a slow disk delays no process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from session.errors import describe
from session.process.context import Context
from session.wire import Message
from session.wire.codec import encode, size_bytes
from surreal_like.addons.recording.segments import Kind, Record, SegmentedWriter

# Bytes that may wait for the disk.
AHEAD_BYTES = 64 << 20
# Records are written together: each time that the thread runs takes time of its process.
_TOGETHER_BYTES, _TOGETHER_SECONDS = 1 << 18, 0.2
# Longest time of each period for which a process waits for the disk.
_FLUSH_SECONDS, _PERIOD_SECONDS = 2.0, 10.0
_CLOSE_SECONDS = 10.0


class _Waiting(NamedTuple):
    """A record that waits for the disk."""

    record: Record
    size_bytes: int


class Journal:
    """Appends records to new segments of a folder, in their order.

    If the disk is too slow, or full, the journal ends with an event, and its owner goes on.

    Args:
        context: context of the process.
        folder: the folder.
        about: first record of each segment.
        limit_bytes: most bytes of all segments; the oldest makes room for new records.
        unit: what the numbers of records count.
        number: number of the next record.

    Attributes:
        stopped: True once nothing is written any more.
        number: the same; set by its owner.
    """

    def __init__(
        self,
        context: Context,
        folder: Path,
        about: Message,
        *,
        limit_bytes: float,
        unit: str = "row",
        number: int = 0,
    ) -> None:
        self.stopped = False
        self.number = number
        self._context, self._folder, self._unit = context, folder, unit
        self._limit_bytes = limit_bytes
        about.sender = context.wire.identity
        self._about = encode(about)
        # Of records that hold nothing but a number.
        self._own = encode(Message("own", sender=context.wire.identity))
        self._waiting: deque[_Waiting] = deque()
        # Each is written by one thread only: no lock is needed to read them.
        self._put_bytes = self._written_bytes = self._announced_bytes = 0
        self._wake = threading.Event()
        self._written = threading.Condition()
        self._closing = False
        # Time for which the process has waited, and end of the period of which that is.
        self._waited = self._period_end = 0.0
        self._advised = False
        # What stopped it, and the number of the first record that is not in it; and as it was said.
        self._failure: tuple[str, int] | None = None
        self._reported: tuple[str, int] | None = None
        self._full_reported = False
        # Of the thread.
        self._segments: SegmentedWriter | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, kind: Kind, frames: Sequence[Any] = ()) -> None:
        """Adds a record, with the present number.

        Args:
            kind: what it is.
            frames: frames of an encoded message, which must not change; empty: only the number.
        """
        if self._failure is not None:
            return
        frames = frames or self._own
        size = size_bytes(frames)
        waiting = self._put_bytes - self._written_bytes
        if waiting and waiting + size > AHEAD_BYTES:
            self._fail(f"the disk is too slow: {AHEAD_BYTES >> 20} MiB wait for it", self.number)
            return
        record = Record(kind, self.number, self._context.clock.time(), frames)
        self._waiting.append(_Waiting(record, size))
        self._put_bytes += size
        if self._put_bytes - self._announced_bytes >= _TOGETHER_BYTES:
            self._wake_up()

    def _wake_up(self) -> None:
        self._announced_bytes = self._put_bytes
        self._wake.set()

    def flush(self) -> None:
        """Waits until all is in the file, unless the disk is too slow; reports what went wrong."""
        if not self._is_idle():
            self._wake_up()
            self._wait()
        self.report()

    def _wait(self) -> None:
        """Waits until all is in the file, for what is left of the time for that."""
        began = monotonic()
        if began >= self._period_end:
            self._waited, self._period_end = 0.0, began + _PERIOD_SECONDS
        if self._waited >= _FLUSH_SECONDS:
            return
        with self._written:
            self._written.wait_for(self._is_idle, _FLUSH_SECONDS - self._waited)
        ended = monotonic()
        self._waited += ended - began
        if self._waited >= _FLUSH_SECONDS:
            self._period_end = ended + _PERIOD_SECONDS
            self._advise()

    def _advise(self) -> None:
        """Says once that the disk is slow."""
        if self._advised:
            return
        self._advised = True
        self._context.event(
            "slow",
            f"acks have waited {_FLUSH_SECONDS:g} of {_PERIOD_SECONDS:g} s for the disk of the "
            "recording: now some do not wait, so that a kill may lose up to "
            f"{AHEAD_BYTES >> 20} MiB of acked rows; put the run folder on a faster disk",
        )

    def close(self) -> None:
        """Writes the rest, with a deadline."""
        self._closing = True
        self._wake_up()
        self._thread.join(_CLOSE_SECONDS)
        with self._written:
            if self._waiting:
                reason = f"the disk is too slow: the end has waited {_CLOSE_SECONDS:g} s for it"
                self._fail(reason, self._first_missing())
        self.report()

    def _is_idle(self) -> bool:
        return self._failure is not None or self._put_bytes == self._written_bytes

    def report(self) -> None:
        """Reports what the thread has met."""
        full = self._segments is not None and self._segments.removed
        if full and not self._full_reported:
            self._full_reported = True
            self._context.event("recording_full", "its oldest part makes room for new rows")
        if self._failure is not None and self._failure != self._reported:
            self.stopped, self._reported = True, self._failure
            error, missing = self._failure
            last = f"{self._unit} {missing:,} and later ones are not in it"
            self._context.event("recording_stopped", f"{error}; {last}")

    def _fail(self, reason: str, missing: int) -> None:
        """Ends the journal; of several numbers of the first record not in it, the least counts."""
        with self._written:
            if self._failure is None or missing < self._failure[1]:
                self._failure = reason, missing
            self._written.notify_all()

    def _first_missing(self) -> int:
        # Read first: a record may be put meanwhile.
        number = self.number
        return self._waiting[0].record.number if self._waiting else number

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._segments = SegmentedWriter(self._folder, self._about, self._limit_bytes)
            while self._waiting or not self._closing:
                self._wake.wait(_TOGETHER_SECONDS)
                self._wake.clear()
                while self._waiting:
                    self._write_some(self._segments)
                with self._written:
                    self._written.notify_all()
        except OSError as error:
            with self._written:
                self._fail(describe(error), self._first_missing())
                self._waiting.clear()
        finally:
            if self._segments is not None:
                self._segments.close()

    def _write_some(self, segments: SegmentedWriter) -> None:
        """Writes some of what waits, into one segment; it waits until it is in the file."""
        records, size, most = list[Record](), 0, min(_TOGETHER_BYTES, segments.room_bytes)
        while len(records) < len(self._waiting) and size < most:
            waiting = self._waiting[len(records)]
            records.append(waiting.record)
            size += waiting.size_bytes
        segments.append(records)
        with self._written:
            for _ in records:
                self._waiting.popleft()
        self._written_bytes += size
