"""Queue of whole unrolls that wait to be learned from, the oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from session.wire import Identity, Message
from surreal_like.experience.chunk import Chunk


class Unroll(NamedTuple):
    """A chunk that is a whole unroll.

    Attributes:
        chunk: as received.
        version: the oldest parameter version that acted in it.
        replayed: True if it was learned from before.
    """

    chunk: Chunk
    version: int
    replayed: bool = False

    @classmethod
    def of(cls, chunk: Chunk) -> Unroll:
        """Returns the unroll of a chunk just received."""
        return cls(chunk, int(chunk.columns["version"].min()))


def pack(unrolls: Iterable[Unroll]) -> dict[str, Any]:
    """Packs unrolls as plain values and one array ``[unrolls, T + 1, N]`` for each column."""
    chunks = [unroll.chunk for unroll in unrolls]
    messages = [chunk.to_message() for chunk in chunks]
    names = messages[0].arrays if messages else ()
    return {
        "senders": [[chunk.sender, chunk.incarnation] for chunk in chunks],
        "fields": [message.fields for message in messages],
        "arrays": {name: np.stack([each.arrays[name] for each in messages]) for name in names},
    }


def unpack(state: Mapping[str, Any]) -> list[Unroll]:
    """Returns the unrolls that :func:`pack` packed, each with memory of its own."""
    unrolls = []
    for number, fields in enumerate(state["fields"]):
        identity = Identity(*state["senders"][number])
        arrays = {name: np.array(packed[number]) for name, packed in state["arrays"].items()}
        chunk = Chunk.from_message(Message("chunk", dict(fields), arrays, sender=identity))
        unrolls.append(Unroll.of(chunk))
    return unrolls


class UnrollQueue:
    """A bounded queue: when full, it accepts no more, or drops its oldest unrolls.

    Args:
        places: most unrolls to hold.
        drops_oldest: drop the oldest when full.
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
        """True if another unroll may be pushed now."""
        return self._drops_oldest or len(self._unrolls) < self.places

    def push(self, unroll: Unroll) -> int:
        """Adds one unroll, also beyond the bound; returns how many were dropped for it."""
        lost = 0
        while self._drops_oldest and len(self._unrolls) >= self.places:
            self._unrolls.popleft()
            lost += 1
        self._unrolls.append(unroll)
        return lost

    def restore(self, unrolls: Iterable[Unroll]) -> None:
        """Replaces all unrolls by these, also beyond the bound."""
        self._unrolls = deque(unrolls)

    def pop(self, count: int) -> list[Unroll]:
        """Removes and returns the ``count`` oldest unrolls, which must exist."""
        return [self._unrolls.popleft() for _ in range(count)]

    def put_back(self, unrolls: Sequence[Unroll]) -> None:
        """Puts unrolls from :meth:`pop` back to the front, also beyond the bound."""
        self._unrolls.extendleft(reversed(unrolls))

    def drop_older(self, version: int) -> int:
        """Drops unrolls that an older version than ``version`` acted in; returns how many."""
        # Agents may lag differently: the first in the queue need not have the oldest version.
        gone = sum(unroll.version < version for unroll in self._unrolls)
        if gone:
            self._unrolls = deque(each for each in self._unrolls if each.version >= version)
        return gone
