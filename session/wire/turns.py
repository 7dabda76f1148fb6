"""Rate limits of connections: a token bucket and a bounded waiting list for each.

libzmq reads its connections in turn (fair queueing), so a flooding one delays each of the others by
one message. These limits bound the total work that it causes, and the memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_CONNECTIONS = 4096

T = TypeVar("T")


class Bucket:
    """A token bucket: ``burst`` tokens at once, ``rate`` tokens per second on average.

    Args:
        rate: tokens added per second.
        burst: maximum number of tokens.
        now: present time [s], on any clock.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Takes tokens; returns False and takes none if there are too few."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True


class _Connection(Generic[T]):
    __slots__ = ("bucket", "dropped", "waiting")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.waiting: deque[T] = deque()
        self.dropped = 0


class Turns(Generic[T]):
    """Limits the rate of items of each connection; late items wait, served round robin.

    Args:
        keep: maximum number of waiting items per connection; more are dropped.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._known: OrderedDict[str, _Connection[T]] = OrderedDict()
        self._late: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def put(self, connection: str, item: T, rate: float, now: float) -> T | None:
        """Returns the item if it may be served at once; None if it waits, or was dropped.

        Args:
            connection: connection of the item.
            item: the received item.
            rate: maximum items per second of the connection, also the maximum burst.
            now: present time [s].
        """
        known = self._known.get(connection)
        if known is None:
            known = self._known[connection] = _Connection(Bucket(rate, rate, now))
            self._forget()
        if not known.waiting and known.bucket.take(now):
            known.dropped = 0
            return item
        if len(known.waiting) < self._keep:
            if not known.waiting:
                self._late.append(connection)
            known.waiting.append(item)
        else:
            known.dropped += 1
        return None

    def next(self, now: float) -> T | None:
        """Returns a waiting item whose connection may be served now, round robin; else None."""
        for _ in range(len(self._late)):
            connection = self._late.popleft()
            known = self._known.get(connection)
            if known is None:
                continue
            item = known.waiting.popleft() if known.bucket.take(now) else None
            if known.waiting:
                self._late.append(connection)
            if item is not None:
                return item
        return None

    def dropped(self, connection: str) -> int:
        """Number of dropped items of a connection since one was last served at once."""
        known = self._known.get(connection)
        return 0 if known is None else known.dropped

    def _forget(self) -> None:
        """Bounds the table; descriptors are reused, so only many keys can reach the bound."""
        if len(self._known) > _CONNECTIONS:
            self._known.popitem(last=False)
