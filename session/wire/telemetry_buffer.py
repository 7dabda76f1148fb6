"""A bounded buffer in front of a PUSH socket: telemetry never blocks or ends a component."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any

from session.errors import OversizeError
from session.nest import Array
from session.wire.codec import Message
from session.wire.socket_state import poll

if TYPE_CHECKING:
    from session.wire.one_way_sockets import PushSocket

_RECORDS_PER_MESSAGE = 500
_ARRAY_BYTES_PER_MESSAGE = 16 << 20
_ARRAY_BYTES_KEPT = 64 << 20

Record = tuple[dict[str, Any], Mapping[str, Array]]
Change = Callable[[dict[str, Any]], dict[str, Any] | None]


class Channel:
    """Buffers records and sends them in batches; when full, drops and counts the oldest.

    A message is ``{"records": [...], "dropped": n}``; arrays of record ``i`` are named ``i/name``.

    Args:
        socket: sends the records; None: they wait for :meth:`hand_over`, and the oldest are dropped
            when the buffer is full.
        kind: kind of the messages.
        buffer: maximum number of buffered records.
    """

    def __init__(self, socket: PushSocket | None, kind: str, *, buffer: int = 10000) -> None:
        self.dropped = 0
        self._socket = socket
        self._kind = kind
        self._records: deque[Record] = deque()
        self._buffer = buffer
        self._array_bytes = 0
        # Held for short times only: one thread may put records while another one sends. Reentrant,
        # because a signal handler may put a record while its thread holds the lock.
        self._lock = RLock()
        self._successor: tuple[Channel, Change] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: dict[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
        """Adds one record of plain data; never blocks."""
        record_and_arrays = (record, arrays or {})
        with self._lock:
            self._array_bytes += _array_bytes(record_and_arrays)
            self._records.append(record_and_arrays)
            self._drop_oldest()
        if self._successor is not None:
            self._forward()

    def hand_over(self, successor: Channel, change: Change) -> None:
        """Moves all records to another channel, and forwards later ones to it.

        Does nothing if this channel has its own socket. Another thread may put records meanwhile.

        Args:
            successor: receives the records.
            change: record -> record for the successor; None: it is discarded.
        """
        if self._socket is None and successor is not self and self._successor is None:
            self._successor = (successor, change)
            successor.dropped += self.dropped
            self._forward()

    def _forward(self) -> None:
        # `put` checks for a successor after adding the record, so no record is left here.
        assert self._successor is not None  # checked by the callers
        successor, change = self._successor
        # Another thread may take the records first, so the buffer may be empty.
        while held := self._take(1):
            [(record, arrays)] = held
            changed = change(record)
            if changed is not None:
                successor.put(changed, arrays)

    def flush(self) -> bool:
        """Sends without blocking; True if no records are left."""
        while self._records and self._socket is not None and self._socket.writable():
            batch = self._take(_RECORDS_PER_MESSAGE)
            arrays = {f"{i}/{k}": a for i, (_, held) in enumerate(batch) for k, a in held.items()}
            fields = {"records": [record for record, _ in batch], "dropped": self.dropped}
            try:
                if not self._socket.send(Message(self._kind, fields, arrays)):
                    self._put_back(batch)
                    return False
            except OversizeError:
                # Not raised: a small session_config.max_message_bytes must not end a component.
                with self._lock:
                    self.dropped += len(batch)
        return not self._records

    def _take(self, most: int) -> list[Record]:
        """Removes and returns the oldest records, up to the limits of one message."""
        batch: list[Record] = []
        size = 0
        with self._lock:
            while self._records and len(batch) < most:
                size += _array_bytes(self._records[0])
                if batch and size > _ARRAY_BYTES_PER_MESSAGE:
                    break
                batch.append(self._records.popleft())
                self._array_bytes -= _array_bytes(batch[-1])
        return batch

    def _put_back(self, batch: list[Record]) -> None:
        with self._lock:
            self._records.extendleft(reversed(batch))
            self._array_bytes += sum(map(_array_bytes, batch))
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drops the oldest records above the limits; the caller holds the lock."""
        while len(self._records) > self._buffer or self._array_bytes > _ARRAY_BYTES_KEPT:
            self._array_bytes -= _array_bytes(self._records.popleft())
            self.dropped += 1

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Flushes with a deadline; drops and counts records that remain or come later."""
        waits = max(1, round(timeout_seconds / 0.02))
        while not self.flush() and self._socket is not None and waits:
            waits -= 1
            poll([], 0.02)
        with self._lock:
            self._buffer = 0
            self._drop_oldest()


def _array_bytes(record: Record) -> int:
    return sum(array.nbytes for array in record[1].values())
