"""Rows of experience in columns: one ring, links along each stream, eviction at the old end.

One file, because every operation on the ring keeps the columns and the links together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from session.nest import Array
from session.process.component import has_joined
from surreal_like.data.columns import Manifest, manifest_of, row_bytes
from surreal_like.errors import DataError
from surreal_like.experience.chunk import REQUIRED_COLUMNS, Chunk
from surreal_like.replay.kept_memory import Zeros, new_zeros


def check_chunk(chunk: Chunk, manifest: Manifest | None) -> tuple[int, int]:
    """Returns T and N if the chunk has the columns of the manifest.

    Args:
        chunk: rows of a sender.
        manifest: columns that rows have here; None: those of the first chunk, which must be of an
            agent of the launcher.

    Raises:
        DataError: it does not; the message names the column.
    """
    columns = chunk.columns
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        raise DataError(f"chunk from {chunk.sender}: column '{missing[0]}' is missing")
    shape = columns["step_type"].shape
    if len(shape) != 2 or not shape[0] or not shape[1] == len(chunk.streams) > 0:
        raise DataError(
            f"chunk from {chunk.sender}: column 'step_type' is {list(shape)}, expected [T, N] "
            f"with T > 0 and N = {len(chunk.streams)}, one for each stream"
        )
    if manifest is None:
        if has_joined(chunk.sender):
            raise DataError(
                f"chunk from {chunk.sender}: the columns of rows are not known yet, and a machine "
                "that has joined does not decide them"
            )
        manifest = manifest_of(columns, axes=2)
    elif columns.keys() != manifest.keys():
        raise DataError(f"chunk from {chunk.sender}: {_difference(manifest, columns)}")
    for name, (dtype, trailing) in manifest.items():
        column = columns[name]
        if column.dtype != dtype or column.shape != shape + trailing:
            raise DataError(
                f"chunk from {chunk.sender}: column '{name}' is {column.dtype} "
                f"{list(column.shape)}, this replay keeps {dtype} {[*shape, *trailing]}; "
                "all senders must send the same columns"
            )
    return shape


def compare_columns(manifest: Manifest, found: Manifest) -> str:
    """Describes in which columns other rows differ from those of a manifest; empty: in none."""
    if found.keys() != manifest.keys():
        return _difference(manifest, found)
    for name, (dtype, shape) in manifest.items():
        if found[name] != (dtype, shape):
            other, dim = found[name]
            return f"column '{name}' is {other} {[*dim]}, this replay keeps {dtype} {[*shape]}"
    return ""


def _difference(manifest: Manifest, columns: Iterable[str]) -> str:
    missing = sorted(manifest.keys() - set(columns))
    unknown = sorted(set(columns) - manifest.keys())
    found = [f"column '{name}' is missing" for name in missing]
    found += [f"column '{name}' is unknown here" for name in unknown]
    return ", ".join(found) + f"; this replay keeps {', '.join(manifest)}"


Rows = npt.NDArray[np.int64]
NO_ROW = -1
# Column of the account of a row's sender, int32: its place in the ledger of this shard, or one of
# these: the account is not known any more, or the sender was fenced.
SENDER = "sender"
NO_SENDER, FENCED = -1, -2


class _Sender:
    """Newest incarnation of a sender: number of its newest chunk, newest row of each stream."""

    def __init__(self, incarnation: int, sequence: int, newest: dict[int, int]) -> None:
        self.incarnation = incarnation
        self.sequence = sequence
        self.newest = newest


class StreamTable:
    """Maps sender and stream to the number of the stream's newest row.

    Only the newest incarnation of a sender is known: replay takes no rows of older ones any more.
    Rows are neighbours only if no chunk is missing between them, so a gap in the sequence numbers
    is a cut: the rows after it start without a predecessor.
    """

    def __init__(self) -> None:
        self._senders: dict[str, _Sender] = {}

    def advance(self, chunk: Chunk, newest: Rows) -> Rows:
        """Stores the last row of each of a chunk's streams; returns the rows before their first.

        Args:
            chunk: the header is read; a chunk that comes late, after its successor, is not linked.
            newest: ``[N]``, number of the last row of each stream.

        Returns:
            ``[N]`` int64: the row before each stream's first one, ``NO_ROW`` where there is none.

        Raises:
            DataError: a stream occurs twice in the chunk.
        """
        streams = chunk.streams
        if len(set(streams)) != len(streams):
            raise DataError(f"chunk from {chunk.sender}: a stream stands twice in {list(streams)}")
        known = self._senders.get(chunk.sender)
        if known is None or chunk.incarnation > known.incarnation:
            known = _Sender(chunk.incarnation, chunk.sequence - 1, {})
            self._senders[chunk.sender] = known
        if chunk.incarnation < known.incarnation or chunk.sequence <= known.sequence:
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
                "incarnation": known.incarnation,
                "sequence": known.sequence,
                "streams": list(known.newest),
                "newest": list(known.newest.values()),
            }
            for sender, known in self._senders.items()
        ]

    def restore(self, state: Sequence[dict[str, Any]]) -> None:
        """Restores what :meth:`state` gave."""
        self._senders = {
            entry["sender"]: _Sender(
                entry["incarnation"],
                entry["sequence"],
                dict(zip(entry["streams"], entry["newest"], strict=True)),
            )
            # Those of earlier versions have more than one incarnation.
            for entry in sorted(state, key=itemgetter("incarnation"))
        }


Empty = Callable[[tuple[int, ...], np.dtype[Any]], Array]

_NEVER = 2**31 - 1  # a distance back that leads to before the first row
LINK_BYTES = 8  # two int32 distances per row


def spans(first: int, rows: int, capacity: int) -> list[tuple[slice, slice]]:
    """Returns one or two pairs (slots of the ring, the part of the rows that lies there)."""
    slot = first % capacity
    fits = min(rows, capacity - slot)
    found = [(slice(slot, slot + fits), slice(0, fits))]
    if fits < rows:
        found.append((slice(0, rows - fits), slice(fits, rows)))
    return found


class ColumnStorage:
    """A ring of rows, one preallocated array per column.

    A row's number is a count that is never used again; it lies at slot ``number mod capacity`` and
    exists from :attr:`oldest` up to, not including, :attr:`next_number`. Links are kept as
    distances in row numbers, so most of them are one constant per chunk.

    Args:
        capacity: most rows to keep.
        max_bytes: bound on the memory of all columns and links, 0 for none; it lowers
            :attr:`capacity` when the first chunk shows how large a row is.
        manifest: columns of a row; None: those of the first chunk, see :func:`check_chunk`.

    Attributes:
        row_bytes: bytes that one row takes, links included; 0 before the first chunk.
        zeros: creates its arrays.
    """

    def __init__(self, capacity: int, max_bytes: int = 0, manifest: Manifest | None = None) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity is {capacity}: a replay needs room for at least one row")
        self.capacity = capacity
        self.oldest = 0
        self.next_number = 0
        self.zeros: Zeros = new_zeros
        self._max_bytes = max_bytes
        self._manifest = manifest
        self.row_bytes = 0
        self._columns: dict[str, Array] = {}
        self._to_next: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._to_previous: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        # For a process that goes on with these arrays.
        self._oldest_word: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._streams = StreamTable()
        self._base = 0

    def __len__(self) -> int:
        return self.next_number - self.oldest

    @property
    def names(self) -> list[str]:
        """Names of the columns, empty before the first chunk."""
        return list(self._columns)

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns and links, used or not."""
        return self.capacity * self.row_bytes

    # -- writing ---------------------------------------------------------------------------------

    def insert(self, chunk: Chunk) -> Rows:
        """Copies a chunk in, evicting as many of the oldest rows as it needs room.

        Returns:
            The new rows' numbers, ``[T, N]`` int64, rising along time first.

        Raises:
            DataError: the columns are not those of the first chunk, or the chunk holds more rows
                than the ring. Nothing is changed then.
        """
        rows, streams = self._admit(chunk)
        first = self.next_number
        numbers = np.arange(first, first + rows).reshape(-1, streams)
        previous = self._streams.advance(chunk, numbers[-1])
        self.evict(first + rows - self.capacity)
        self.next_number = first + rows
        self._copy(chunk.columns, first, rows)
        self._link(first, numbers, previous)
        if first // self.capacity != self.next_number // self.capacity:
            self._streams.forget(self.oldest)
        return numbers

    def _copy(self, columns: Mapping[str, Array], first: int, rows: int) -> None:
        places = spans(first, rows, self.capacity)
        for name, column in columns.items():
            ring = self._columns[name]
            block = column.reshape(rows, *ring.shape[1:])
            for slots, part in places:
                ring[slots] = block[part]

    def _link(self, first: int, numbers: Rows, previous: Rows) -> None:
        """Sets distances: inside a chunk its number of streams; only its two ends differ."""
        steps, streams = numbers.shape
        for slots, _ in spans(first, steps * streams, self.capacity):
            self._to_next[slots] = streams
            self._to_previous[slots] = streams
        for slots, _ in spans(first + (steps - 1) * streams, streams, self.capacity):
            self._to_next[slots] = 0
        alive = previous >= self.oldest  # False for evicted rows and for NO_ROW
        distance = numbers[0] - previous
        if np.count_nonzero(alive) < streams:
            distance[~alive] = _NEVER  # row numbers may exceed 32 bits
        for slots, part in spans(first, streams, self.capacity):
            self._to_previous[slots] = distance[part]
        self._to_next.put(previous[alive] - self._base, distance[alive], mode="wrap")

    def oldest_after(self, chunk: Chunk) -> int:
        """Number of the oldest row after an insert of a chunk. Raises as :meth:`insert`."""
        rows, _ = self._admit(chunk)
        return max(self.oldest, self.next_number + rows - self.capacity)

    def evict(self, oldest: int) -> int:
        """Removes rows before ``oldest``, if there are any; returns how many were removed."""
        before = self.oldest
        self._oldest_word[0] = self.oldest = min(max(oldest, before), self.next_number)
        self._base = self.oldest - self.oldest % self.capacity
        return self.oldest - before

    def _admit(self, chunk: Chunk) -> tuple[int, int]:
        """Returns rows and streams of a chunk; allocates for the first one."""
        manifest = self._manifest
        steps, streams = check_chunk(chunk, manifest)
        if manifest is None:
            manifest = manifest_of(chunk.columns, axes=2)
        capacity = self._capacity_for(manifest)
        if steps * streams > capacity:
            raise DataError(
                f"chunk from {chunk.sender}: {steps} x {streams} rows do not fit into a replay of "
                f"{capacity} rows; raise the capacity or send smaller chunks"
            )
        if not self._columns:
            self._allocate(manifest)
        return steps * streams, streams

    def _capacity_for(self, manifest: Manifest) -> int:
        if not self._max_bytes or self._columns:
            return self.capacity
        needed = row_bytes(manifest) + LINK_BYTES
        if self._max_bytes < needed:
            raise ConfigError(
                f"max_bytes is {self._max_bytes}, but one row alone takes {needed} bytes"
            )
        return min(self.capacity, self._max_bytes // needed)

    def _allocate(self, manifest: Manifest) -> None:
        if self._manifest is not None and (wrong := compare_columns(self._manifest, manifest)):
            raise DataError(f"rows of before: {wrong}")
        self.capacity = self._capacity_for(manifest)
        self._manifest = manifest
        self.row_bytes = row_bytes(manifest) + LINK_BYTES
        self._columns = {
            name: self.zeros(f"columns/{name}", (self.capacity, *trailing), dtype)
            for name, (dtype, trailing) in manifest.items()
        }
        self._to_next = self.zeros("to_next", (self.capacity,), np.int32)
        self._to_previous = self.zeros("to_previous", (self.capacity,), np.int32)
        self._oldest_word = self.zeros("oldest", (1,), np.int64)

    # -- reading ---------------------------------------------------------------------------------

    def exists(self, numbers: Rows) -> npt.NDArray[np.bool_]:
        """True for each number of a row that exists."""
        return (numbers >= self.oldest) & (numbers < self.next_number)

    def locate(self, numbers: Rows) -> Rows:
        """Positions of existing rows for :meth:`take` and :meth:`distance`; any shape.

        A position moves along the stream by adding distances. It may lie past the end of the ring;
        readers wrap it, which is cheaper than a remainder per row.
        """
        return numbers - self._base

    def number(self, positions: Rows) -> Rows:
        """The row numbers of positions."""
        return positions + self._base

    def take(self, name: str, positions: Rows, empty: Empty | None = None) -> Array:
        """Returns values of one column at positions, which must be of existing rows (not checked).

        Args:
            name: name of the column.
            positions: places of rows, of any shape.
            empty: creates the array; without it numpy does, which is faster for small arrays.
        """
        column = self._columns[name]
        if empty is None:
            return column.take(positions, axis=0, mode="wrap")
        into = empty((*positions.shape, *column.shape[1:]), column.dtype)
        return column.take(positions, axis=0, mode="wrap", out=into)

    def distance(self, positions: Rows) -> npt.NDArray[np.int32]:
        """Distances to the next row of the stream, 0 where it has not come."""
        return self._to_next.take(positions, mode="wrap")

    def step_back(self, positions: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Positions of the previous rows of the streams, and flags of those that exist."""
        before = positions - self._to_previous.take(positions, mode="wrap")
        return before, before >= self.oldest - self._base

    def fence(self, places: Collection[int]) -> Rows:
        """Marks the rows of some senders as fenced; returns their numbers."""
        found = []
        for slots, part in spans(self.oldest, len(self), self.capacity):
            senders = self._columns[SENDER][slots]
            of_them = np.isin(senders, list(places))
            senders[of_them] = FENCED
            found.append(self.oldest + part.start + np.flatnonzero(of_them))
        return np.concatenate(found)

    def forget_senders(self) -> None:
        """Marks all senders as unknown, of which a new ledger has no accounts; fenced ones stay."""
        senders = self._columns[SENDER]
        senders[senders >= 0] = NO_SENDER

    def find_torn(self, oldest: int) -> Rows:
        """Positions of rows from number ``oldest`` on whose previous row is older than that."""
        found = []
        rows = min(oldest, self.next_number) - self.oldest
        for slots, part in spans(self.oldest, max(rows, 0), self.capacity):
            distance = self._to_next[slots]
            after = np.arange(self.oldest + part.start, self.oldest + part.stop) + distance
            found.append(after[(distance > 0) & (after >= oldest)])
        return self.locate(np.concatenate(found))

    def read(self, name: str) -> list[Array]:
        """One column of all rows, the oldest first, as one or two views on the ring."""
        ring = self._columns[name]
        return [ring[slots] for slots, _ in spans(self.oldest, len(self), self.capacity)]

    def require(self, numbers: Rows) -> None:
        """Raises DataError if a row does not exist."""
        if numbers.size and (numbers.min() < self.oldest or numbers.max() >= self.next_number):
            wrong = numbers[~self.exists(numbers)].flat[0]
            raise DataError(
                f"row {wrong} is not in this replay, which holds rows {self.oldest} "
                f"to {self.next_number - 1}"
            )

    # -- saving ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values.

        The arrays are views on the ring: write or copy them before the next insert.
        """
        used = slice(0, min(self.next_number, self.capacity))
        return {
            "capacity": self.capacity,
            "oldest": self.oldest,
            "next_number": self.next_number,
            "columns": {name: ring[used] for name, ring in self._columns.items()},
            "to_next": self._to_next[used],
            "to_previous": self._to_previous[used],
            "streams": self._streams.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave, also from a ring of another capacity.

        If this ring is smaller, the oldest rows are left out.

        Raises:
            DataError: the rows have other columns than were recorded; this ring is unusable then.
        """
        columns: Mapping[str, Array] = state["columns"]
        if columns:
            self._allocate(manifest_of(columns, axes=1))
        self.next_number = state["next_number"]
        self.evict(max(state["oldest"], self.next_number - self.capacity))
        for here, there in self._pair_slots(state["capacity"]):
            for name, ring in self._columns.items():
                ring[here] = columns[name][there]
            self._to_next[here] = state["to_next"][there]
            self._to_previous[here] = state["to_previous"][there]
        self._streams.restore(state["streams"])

    def counts(self) -> dict[str, Any]:
        """Returns the plain values with which :meth:`adopt` finds the rows in the arrays."""
        columns = {name: [ring.dtype.str, ring.shape[1:]] for name, ring in self._columns.items()}
        return {"capacity": self.capacity, "next_number": self.next_number, "columns": columns}

    def adopt(self, counts: Mapping[str, Any]) -> None:
        """Goes on with the arrays that a process has left which was killed after :meth:`counts`.

        Rows that it had inserted since are not there, and no stream goes on: a chunk that follows
        begins without a predecessor. Raises as :meth:`restore`.
        """
        columns = counts["columns"].items()
        self.capacity = counts["capacity"]
        if not columns:
            return
        self._allocate({name: (np.dtype(type_), tuple(dim)) for name, (type_, dim) in columns})
        self.next_number = counts["next_number"]
        self.evict(int(self._oldest_word[0]))
        self._cut_links()

    def cut(self, end: int) -> int:
        """Removes the rows from number ``end`` on; returns how many. No stream goes on."""
        before = self.next_number
        self.next_number = min(max(end, self.oldest), before)
        self._streams = StreamTable()
        self._cut_links()
        return before - self.next_number

    def _cut_links(self) -> None:
        """Removes the links of rows to others behind the last one."""
        for slots, part in spans(self.oldest, len(self), self.capacity):
            left = self.next_number - self.oldest - np.arange(part.start, part.stop)
            to_next = self._to_next[slots]
            to_next[to_next >= left] = 0

    def _pair_slots(self, capacity: int) -> Iterable[tuple[slice, slice]]:
        """Slots of all existing rows, in this ring and in the saved one of ``capacity`` rows."""
        for there, part in spans(self.oldest, len(self), capacity):
            for here, piece in spans(
                self.oldest + part.start, part.stop - part.start, self.capacity
            ):
                yield here, slice(there.start + piece.start, there.start + piece.stop)
