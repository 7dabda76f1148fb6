"""Rates of connections: a token bucket for each, and waiting lists for what comes too fast.

libzmq reads its connections in turn (fair queueing), so one that floods delays the others by one
message each. What is left to bound is the work that it causes in all, and the memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_CONNECTIONS = 4096

T = TypeVar("T")


class Bucket:
    """A token bucket: ``burst`` at once, ``rate`` a second in the long run.

    Args:
        rate: tokens that come back each second.
        burst: tokens that it holds at most.
        now: the time, on any clock in seconds.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Takes tokens; False, and takes none, if there are not as many."""
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
    """What comes over several connections, no faster than each of them may be served.

    Args:
        keep: what waits of one connection at most; more of it is dropped.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._known: OrderedDict[str, _Connection[T]] = OrderedDict()
        self._late: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def put(self, connection: str, item: T, rate: float, now: float) -> T | None:
        """The item if it may be served at once; None if it waits for its turn, or was dropped.

        Args:
            connection: over which it came.
            item: what came.
            rate: at which the connection is served, per second; as many may come at once.
            now: the time [s].
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
        """What has waited for its turn, if a turn has come; connections go round."""
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
        """How much was dropped of a connection since something of it was served at once."""
        known = self._known.get(connection)
        return 0 if known is None else known.dropped

    def _forget(self) -> None:
        """Descriptors are used again, so only more keys than connections can be make this many."""
        if len(self._known) > _CONNECTIONS:
            self._known.popitem(last=False)
