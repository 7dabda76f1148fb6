"""Whole unrolls that wait to be learned from, the oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from session.wire import Identity, Message
from surreal_like.data.chunk import Chunk


class Unroll(NamedTuple):
    """A chunk that is a whole unroll.

    Attributes:
        chunk: as it came.
        version: the oldest version that it was acted with.
        replayed: True if it was learned from before.
    """

    chunk: Chunk
    version: int
    replayed: bool = False

    @classmethod
    def of(cls, chunk: Chunk) -> Unroll:
        """The unroll of a chunk that has just come."""
        return cls(chunk, int(chunk.columns["version"].min()))


def pack(unrolls: Iterable[Unroll]) -> dict[str, Any]:
    """Unrolls as plain values and one array for each of their columns, ``[unrolls, T + 1, N]``."""
    chunks = [unroll.chunk for unroll in unrolls]
    messages = [chunk.to_message() for chunk in chunks]
    names = messages[0].arrays if messages else ()
    return {
        "senders": [[chunk.sender, chunk.incarnation] for chunk in chunks],
        "fields": [message.fields for message in messages],
        "arrays": {name: np.stack([each.arrays[name] for each in messages]) for name in names},
    }


def unpack(state: Mapping[str, Any]) -> list[Unroll]:
    """The unrolls that :func:`pack` gave, each with memory of its own."""
    unrolls = []
    for number, fields in enumerate(state["fields"]):
        identity = Identity(*state["senders"][number])
        arrays = {name: np.array(packed[number]) for name, packed in state["arrays"].items()}
        chunk = Chunk.from_message(Message("chunk", dict(fields), arrays, sender=identity))
        unrolls.append(Unroll.of(chunk))
    return unrolls


class UnrollQueue:
    """A bounded queue: full, it takes no more, or loses its oldest unrolls.

    Args:
        places: unrolls that it has room for.
        drops_oldest: which of the two.
    """

    def __init__(self, places: int, *, drops_oldest: bool = False) -> None:
        self.places = places
        self._drops_oldest = drops_oldest
        self._unrolls: deque[Unroll] = deque()

    def __len__(self) -> int:
        return len(self._unrolls)

    def __iter__(self) -> Iterator[Unroll]:
        return iter(self._unrolls)

    def can_push(self) -> bool:
        """Whether another unroll may come now."""
        return self._drops_oldest or len(self._unrolls) < self.places

    def push(self, unroll: Unroll) -> int:
        """Takes in one unroll, also beyond its bound; returns how many were lost for it."""
        lost = 0
        while self._drops_oldest and len(self._unrolls) >= self.places:
            self._unrolls.popleft()
            lost += 1
        self._unrolls.append(unroll)
        return lost

    def restore(self, unrolls: Iterable[Unroll]) -> None:
        """Holds these, also beyond its bound, and no others."""
        self._unrolls = deque(unrolls)

    def pop(self, count: int) -> list[Unroll]:
        """The oldest unrolls, of which there must be so many."""
        return [self._unrolls.popleft() for _ in range(count)]

    def put_back(self, unrolls: Sequence[Unroll]) -> None:
        """Puts what :meth:`pop` gave back to the front, also beyond the bound."""
        self._unrolls.extendleft(reversed(unrolls))

    def drop_older(self, version: int) -> int:
        """Loses what was acted with an older version; returns how many unrolls."""
        # An agent may be behind another: the oldest in the queue need not be the oldest acted.
        gone = sum(unroll.version < version for unroll in self._unrolls)
        if gone:
            self._unrolls = deque(each for each in self._unrolls if each.version >= version)
        return gone
