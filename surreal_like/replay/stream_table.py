"""Table of each stream's newest row, so that the next chunk can be linked to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk

Rows = npt.NDArray[np.int64]
NO_ROW = -1


class _Sender:
    """Sender incarnation: number of its newest chunk, newest row of each stream."""

    def __init__(self, sequence: int, newest: dict[int, int]) -> None:
        self.sequence = sequence
        self.newest = newest


class StreamTable:
    """Maps (sender, incarnation, stream) to the number of the stream's newest row.

    Rows are neighbours only if no chunk is missing between them, so a gap in the sequence numbers
    is a cut: the rows after it start without a predecessor.
    """

    def __init__(self) -> None:
        self._senders: dict[tuple[str, int], _Sender] = {}

    def __len__(self) -> int:
        return len(self._senders)

    def advance(self, chunk: Chunk, newest: Rows) -> Rows:
        """Stores the last row of each of a chunk's streams; returns the rows before their first.

        Args:
            chunk: its header is read; a chunk that comes late, after its successor, is not linked.
            newest: ``[N]``, number of the last row of each stream.

        Returns:
            ``[N]`` int64: the row before each stream's first one, ``NO_ROW`` where there is none.

        Raises:
            DataError: a stream occurs twice in the chunk.
        """
        streams = chunk.streams
        if len(set(streams)) != len(streams):
            raise DataError(f"chunk from {chunk.sender}: a stream stands twice in {list(streams)}")
        key = (chunk.sender, chunk.incarnation)
        known = self._senders.get(key)
        if known is None:
            known = self._senders[key] = _Sender(chunk.sequence - 1, {})
        if chunk.sequence <= known.sequence:
            return np.full(len(streams), NO_ROW, np.int64)
        if chunk.sequence != known.sequence + 1:
            known.newest.clear()
        known.sequence = chunk.sequence
        previous = [known.newest.pop(stream, NO_ROW) for stream in streams]
        if not chunk.tail:  # a row without an action ends its stream: nothing may follow it
            known.newest.update(zip(streams, newest.tolist(), strict=True))
        return np.array(previous, np.int64)

    def forget(self, oldest: int) -> None:
        """Forgets senders that have no row from ``oldest`` on."""
        self._senders = {
            key: known
            for key, known in self._senders.items()
            if any(number >= oldest for number in known.newest.values())
        }

    def state(self) -> list[dict[str, Any]]:
        """Plain values from which :meth:`restore` makes the same table."""
        return [
            {
                "sender": sender,
                "incarnation": incarnation,
                "sequence": known.sequence,
                "streams": list(known.newest),
                "newest": list(known.newest.values()),
            }
            for (sender, incarnation), known in self._senders.items()
        ]

    def restore(self, state: Sequence[dict[str, Any]]) -> None:
        """Restores what :meth:`state` gave."""
        self._senders = {
            (entry["sender"], entry["incarnation"]): _Sender(
                entry["sequence"], dict(zip(entry["streams"], entry["newest"], strict=True))
            )
            for entry in state
        }
