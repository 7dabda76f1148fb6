"""A bounded buffer in front of a PUSH socket, for telemetry that must never hurt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from session.errors import OversizeError
from session.nest import Array
from session.wire.codec import Message
from session.wire.sockets import PushSocket, poll

_RECORDS_PER_MESSAGE = 500
_ARRAY_BYTES_PER_MESSAGE = 16 << 20
_ARRAY_BYTES_KEPT = 64 << 20

Record = tuple[dict[str, Any], Mapping[str, Array]]
Change = Callable[[dict[str, Any]], dict[str, Any] | None]


class Channel:
    """Collects records and sends them in batches; when full the oldest is dropped and counted.

    A message is ``{"records": [...], "dropped": n}``; arrays of record ``i`` are named ``i/name``.

    Args:
        socket: where records go; without one they wait for :meth:`hand_over`, or are dropped as
            they age.
        kind: kind of the messages.
        buffer: how many records are kept at most.
    """

    def __init__(self, socket: PushSocket | None, kind: str, *, buffer: int = 10000) -> None:
        self.dropped = 0
        self._socket = socket
        self._kind = kind
        self._records: deque[Record] = deque()
        self._buffer = buffer
        self._array_bytes = 0
        # Held for moments only: one thread may put records while another one sends. A signal
        # handler may put one in the middle of that.
        self._lock = RLock()
        self._successor: tuple[Channel, Change] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: dict[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
        """Takes one record of plain data; never blocks."""
        record_and_arrays = (record, arrays or {})
        with self._lock:
            self._array_bytes += _array_bytes(record_and_arrays)
            self._records.append(record_and_arrays)
            self._drop_oldest()
        if self._successor is not None:
            self._forward()

    def hand_over(self, successor: Channel, change: Change) -> None:
        """Gives what waits here to another channel, now and from now on.

        Nothing happens where this channel has a socket of its own. Another thread may put records
        meanwhile.

        Args:
            successor: where records go.
            change: what the successor gets of a record; None: nothing.
        """
        if self._socket is None and successor is not self and self._successor is None:
            self._successor = (successor, change)
            successor.dropped += self.dropped
            self._forward()

    def _forward(self) -> None:
        # Whoever puts a record looks for a successor after that, so none is left behind.
        assert self._successor is not None  # the callers have looked
        successor, change = self._successor
        # Another thread may be faster, and leave none.
        while held := self._take(1):
            [(record, arrays)] = held
            changed = change(record)
            if changed is not None:
                successor.put(changed, arrays)

    def flush(self) -> bool:
        """Sends what can leave now; True if nothing is left."""
        while self._records and self._socket is not None and self._socket.writable():
            batch = self._take(_RECORDS_PER_MESSAGE)
            arrays = {f"{i}/{k}": a for i, (_, held) in enumerate(batch) for k, a in held.items()}
            fields = {"records": [record for record, _ in batch], "dropped": self.dropped}
            try:
                if not self._socket.send(Message(self._kind, fields, arrays)):
                    self._put_back(batch)
                    return False
            except OversizeError:
                # Telemetry never ends a component, however small session_config.max_message_bytes.
                with self._lock:
                    self.dropped += len(batch)
        return not self._records

    def _take(self, most: int) -> list[Record]:
        """Removes the oldest records, as many as one message may hold."""
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
        """Makes room; the caller holds the lock."""
        while len(self._records) > self._buffer or self._array_bytes > _ARRAY_BYTES_KEPT:
            self._array_bytes -= _array_bytes(self._records.popleft())
            self.dropped += 1

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Flushes with a deadline; what could not leave, or comes later, is dropped and counted."""
        waits = max(1, round(timeout_seconds / 0.02))
        while not self.flush() and self._socket is not None and waits:
            waits -= 1
            poll([], 0.02)
        with self._lock:
            self._buffer = 0
            self._drop_oldest()


def _array_bytes(record: Record) -> int:
    return sum(array.nbytes for array in record[1].values())
