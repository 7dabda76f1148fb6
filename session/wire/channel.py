"""A bounded buffer in front of a PUSH socket, for telemetry that must never hurt."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from session.wire.codec import Array, Message
from session.wire.sockets import PushSocket, poll

_RECORDS_PER_MESSAGE = 500

Record = tuple[dict[str, Any], Mapping[str, Array]]


class Channel:
    """Collects records and sends them in batches; when full the oldest is dropped and counted.

    A message is ``{"records": [...], "dropped": n}``; arrays of record ``i`` are named ``i/name``.

    Args:
        socket: where records go; without one they are dropped as they age.
        kind: kind of the messages.
        buffer: how many records are kept at most.
    """

    def __init__(self, socket: PushSocket | None, kind: str, *, buffer: int = 10000) -> None:
        self.dropped = 0
        self._socket = socket
        self._kind = kind
        self._records: deque[Record] = deque()
        self._buffer = buffer

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: dict[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
        """Takes one record of plain data; never blocks."""
        if len(self._records) >= self._buffer:
            self._records.popleft()
            self.dropped += 1
        self._records.append((record, arrays or {}))

    def flush(self) -> bool:
        """Sends what can leave now; True if nothing is left."""
        while self._records and self._socket is not None and self._socket.writable():
            count = min(len(self._records), _RECORDS_PER_MESSAGE)
            batch = [self._records[i] for i in range(count)]
            arrays = {f"{i}/{k}": a for i, (_, held) in enumerate(batch) for k, a in held.items()}
            fields = {"records": [record for record, _ in batch], "dropped": self.dropped}
            if not self._socket.send(Message(self._kind, fields, arrays)):
                return False
            for _ in batch:
                self._records.popleft()
        return not self._records

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Flushes with a deadline; what could not leave is dropped and counted."""
        waits = max(1, round(timeout_seconds / 0.02))
        while not self.flush() and self._socket is not None and waits:
            waits -= 1
            poll([], 0.02)
        self.dropped += len(self._records)
        self._records.clear()
