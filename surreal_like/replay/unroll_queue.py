"""Whole unrolls that wait to be learned from, the oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from session.wire import Identity, Message
from surreal_like.data.experience import Chunk


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

    def state(self) -> dict[str, Any]:
        """The chunk as its message: plain fields, and the arrays themselves."""
        message = self.chunk.to_message()
        sender = [self.chunk.sender, self.chunk.incarnation]
        return {"sender": sender, "fields": message.fields, "arrays": dict(message.arrays)}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Unroll:
        """The unroll that :meth:`state` gave."""
        name, incarnation = state["sender"]
        identity = Identity(name, incarnation)
        message = Message("chunk", dict(state["fields"]), state["arrays"], sender=identity)
        return cls.of(Chunk.from_message(message))


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

    def drop_older(self, version: int) -> int:
        """Loses what was acted with an older version; returns how many unrolls."""
        # An agent may be behind another: the oldest in the queue need not be the oldest acted.
        gone = sum(unroll.version < version for unroll in self._unrolls)
        if gone:
            self._unrolls = deque(each for each in self._unrolls if each.version >= version)
        return gone
