"""Index of the rows of each episode: any row of an episode is found without a walk along it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from session.nest import Array
from surreal_like.data.timestep import FIRST, LAST
from surreal_like.replay.storage import ColumnStorage, Rows, spans


class EpisodeIndex:
    """Maps rows to places in their episodes, and places to rows.

    FIRST has place 0; an episode whose beginning is not here starts at place 1. An episode is a
    short list of segments (first row, stride, place of the first row), because the rows of one
    stream in one chunk are equally far apart. A list lies in one piece in a pool, in room for a
    power of two of segments, so that many lists are searched at once.

    Args:
        capacity: most rows that exist at once.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._oldest = self._next_number = 0
        self._episode: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)  # of each slot
        # Of each episode: its first segment in the pool, their number, the place after the newest
        # row.
        self._begin, self._count, self._length = (np.zeros(0, np.int32) for _ in range(3))
        self._row: Rows = np.zeros(0, np.int64)
        self._at, self._stride = (np.zeros(0, np.int32) for _ in range(2))
        self._free: list[int] = []
        self._free_rooms: dict[int, list[int]] = {}
        self._used = 0  # segments of the pool that were ever in use

    # -- writing ---------------------------------------------------------------------------------

    def insert(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> None:
        """Adds the rows of a chunk that the storage has just stored.

        Args:
            storage: holds the new rows already.
            numbers: numbers of the new rows, ``[T, N]``.
            step_type: step types of the new rows, ``[T, N]``.
        """
        self.evict(storage.oldest)
        steps, streams = numbers.shape
        before, continues = predecessors(storage, numbers[0])
        begins = np.ones(numbers.shape, np.bool_)
        begins[0] = ~continues | (step_type[0] == FIRST)
        begins[1:] = (step_type[:-1] == LAST) | (step_type[1:] == FIRST)
        cuts = begins.T.copy()  # by stream, then by time
        cuts[:, 0] = True
        owners = []
        places = np.flatnonzero(cuts).tolist()
        for place, end in zip(places, [*places[1:], streams * steps], strict=True):
            stream, t = divmod(place, steps)
            if begins[t, stream]:
                episode = self._open(0 if step_type[t, stream] == FIRST else 1)
            else:
                episode = int(self._episode[before[stream] % self._capacity])
            self._extend(episode, int(numbers[t, stream]), streams, end - place)
            owners.append(episode)
        segment = np.cumsum(cuts.reshape(-1)) - 1
        self._write(numbers, np.array(owners, np.int32)[segment].reshape(streams, steps).T)

    def _write(self, numbers: Rows, episodes: npt.NDArray[np.int32]) -> None:
        first, flat = int(numbers[0, 0]), episodes.reshape(-1)
        for slots, part in spans(first, len(flat), self._capacity):
            self._episode[slots] = flat[part]
        self._next_number = first + len(flat)

    @classmethod
    def of(cls, storage: ColumnStorage) -> EpisodeIndex:
        """Returns the index of all rows of a restored storage."""
        index = cls(storage.capacity)
        index._oldest = index._next_number = storage.oldest
        numbers = np.arange(storage.oldest, storage.next_number)
        if not len(numbers):
            return index
        first = storage.take("step_type", storage.locate(numbers)) == FIRST
        before, continues = predecessors(storage, numbers)
        continues &= ~first
        owners: list[int] = []
        rows = (numbers.tolist(), before.tolist(), continues.tolist(), first.tolist())
        for number, previous, goes_on, is_first in zip(*rows, strict=True):
            known = owners[previous - storage.oldest] if goes_on else None
            episode = index._open(0 if is_first else 1) if known is None else known
            index._extend(episode, number, 1, 1)
            owners.append(episode)
        index._write(numbers[None], np.array(owners, np.int32))
        return index

    def evict(self, oldest: int) -> None:
        """Removes rows before ``oldest``."""
        rows = min(oldest, self._next_number) - self._oldest
        if rows <= 0:
            return
        parts = spans(self._oldest, rows, self._capacity)
        gone = np.unique(np.concatenate([self._episode[slots] for slots, _ in parts]))
        self._oldest = oldest
        last = self._begin[gone] + self._count[gone] - 1
        steps = self._length[gone] - 1 - self._at[last]
        for episode in gone[self._row[last] + steps * self._stride[last] < oldest].tolist():
            self._release(int(self._begin[episode]), int(self._count[episode]))
            self._free.append(episode)

    def _open(self, place: int) -> int:
        """Returns a new episode, without rows, whose first row will have this place."""
        if not self._free:
            known = len(self._begin)
            more = max(known, 64)
            self._begin, self._count, self._length = (
                _grow(each, more) for each in (self._begin, self._count, self._length)
            )
            self._free = list(range(known + more - 1, known - 1, -1))
        episode = self._free.pop()
        self._begin[episode], self._count[episode] = self._reserve(1), 0
        self._length[episode] = place
        return episode

    def _extend(self, episode: int, row: int, stride: int, rows: int) -> None:
        """Adds rows to the end of an episode: to its last segment where they follow its stride."""
        place, count = int(self._length[episode]), int(self._count[episode])
        self._length[episode] = place + rows
        if count:
            last = int(self._begin[episode]) + count - 1
            here, distance = place - int(self._at[last]), row - int(self._row[last])
            if here == 1 and (rows == 1 or distance == stride):
                self._stride[last] = distance
                return
            if distance == here * int(self._stride[last]) and (
                rows == 1 or stride == self._stride[last]
            ):
                return
            if count & (count - 1) == 0:  # its room is full
                count = self._move(episode, count)
        segment = int(self._begin[episode]) + count
        self._count[episode] = count + 1
        self._row[segment], self._at[segment], self._stride[segment] = row, place, stride

    def _move(self, episode: int, count: int) -> int:
        """Moves segments whose rows still exist to room for one more; returns their number."""
        begin = int(self._begin[episode])
        # A segment has gone for certain when the one after it begins before the oldest row.
        gone = int(np.count_nonzero(self._row[begin + 1 : begin + count] <= self._oldest))
        kept = slice(begin + gone, begin + count)
        room = 1 << (count - gone).bit_length()
        to = self._reserve(room)
        for pool in (self._row, self._at, self._stride):
            pool[to : to + count - gone] = pool[kept]
        self._release(begin, count)
        self._begin[episode] = to
        return count - gone

    def _reserve(self, room: int) -> int:
        """Returns the begin of unused room in the pool."""
        if free := self._free_rooms.get(room):
            return free.pop()
        begin, self._used = self._used, self._used + room
        if self._used > len(self._row):
            more = max(len(self._row), 64, room)
            self._row = _grow(self._row, more)
            self._at, self._stride = _grow(self._at, more), _grow(self._stride, more)
        return begin

    def _release(self, begin: int, count: int) -> None:
        """Frees the room of so many segments."""
        self._free_rooms.setdefault(1 << max(count - 1, 0).bit_length(), []).append(begin)

    # -- reading ---------------------------------------------------------------------------------

    def place(self, numbers: Rows) -> tuple[Rows, Rows]:
        """Returns the episodes of existing rows, and their places in them, ``[B]`` each."""
        episodes = self._episode[numbers % self._capacity].astype(np.int64)
        segment = self._find(self._row, episodes, numbers)
        steps = (numbers - self._row[segment]) // self._stride[segment]
        return episodes, self._at[segment] + steps

    def first(self, episodes: Rows) -> Rows:
        """Returns the place of the first row after FIRST that still exists, of each episode."""
        segment = self._find(self._row, episodes, np.full(len(episodes), self._oldest))
        missing = np.maximum(self._oldest - self._row[segment], 0)
        steps = -(-missing // self._stride[segment])
        # All of this segment may have gone; then the next one, or the end, follows it.
        is_last = segment == self._begin[episodes] + self._count[episodes] - 1
        after = np.where(is_last, self._length[episodes], self._at.take(segment + 1, mode="clip"))
        places: Rows = np.maximum(np.minimum(self._at[segment] + steps, after), 1)
        return places

    def last(self, episodes: Rows) -> Rows:
        """Returns the place of the newest row of each episode."""
        return self._length[episodes].astype(np.int64) - 1

    def row(self, episodes: Rows, places: Rows) -> Rows:
        """Returns the numbers of the rows at places of episodes."""
        segment = self._find(self._at, episodes, places)
        numbers: Rows = self._row[segment] + (places - self._at[segment]) * self._stride[segment]
        return numbers

    def _find(self, key: npt.NDArray[np.integer], episodes: Rows, values: Rows) -> Rows:
        """Returns each episode's last segment whose key is at most a value, else the first one."""
        count = self._count[episodes]
        low = self._begin[episodes].astype(np.int64)
        high = low + count - 1
        for _ in range((int(count.max(initial=1)) - 1).bit_length()):
            middle = (low + high + 1) >> 1
            right = key[middle] <= values
            low = np.where(right, middle, low)
            high = np.maximum(np.where(right, high, middle - 1), low)
        return low


def predecessors(storage: ColumnStorage, numbers: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Returns the previous rows' numbers, and flags of those that exist in the same episode."""
    at = storage.locate(numbers)
    before, there = storage.step_back(at)
    before = np.where(there, before, at)
    continues = there & (storage.take("step_type", before) != LAST)
    return storage.number(before), continues


def _grow(array: Array, more: int) -> Array:
    return np.concatenate([array, np.zeros(more, array.dtype)])
