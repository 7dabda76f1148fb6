"""The slow twin of storage, view and selector: python lists, row by row, word for word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from session import nest
from session.nest import Array
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import NO_ROW, ColumnStorage, Rows


def values_of(storage: ColumnStorage, numbers: Rows, names: Iterable[str]) -> dict[str, Array]:
    """Values of some columns at rows."""
    storage.require(numbers)
    return {name: storage.take(name, storage.locate(numbers)) for name in names}


def successor(storage: ColumnStorage, numbers: Rows) -> Rows:
    """The next row of each row's stream, ``NO_ROW`` where it has not come."""
    distance = storage.distance(storage.locate(numbers))
    return np.where(distance > 0, numbers + distance, NO_ROW)


def predecessor(storage: ColumnStorage, numbers: Rows) -> Rows:
    """The previous row of each row's stream, ``NO_ROW`` where there is none any more."""
    before, there = storage.step_back(storage.locate(numbers))
    return np.where(there, storage.number(before), NO_ROW)


@dataclass(eq=False)
class Row:
    """One row: its values, and its neighbours in the stream."""

    number: int
    values: dict[str, Any]
    after: Row | None = None
    before: Row | None = None

    @property
    def is_last(self) -> bool:
        return bool(self.values["step_type"] == 2)


class Twin:
    """Keeps rows in a list, the oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows: list[Row] = []
        self.next_number = 0
        self._newest: dict[tuple[str, int, int], Row] = {}
        self._sequence: dict[tuple[str, int], int] = {}
        self._incarnations: dict[str, int] = {}

    def insert(self, chunk: Chunk) -> None:
        key = (chunk.sender, chunk.incarnation)
        known = self._sequence.get(key, chunk.sequence - 1)
        # Replay refuses rows of older incarnations, so nothing is known of their streams.
        newest = self._incarnations.get(chunk.sender, chunk.incarnation)
        self._incarnations[chunk.sender] = max(newest, chunk.incarnation)
        late = chunk.sequence <= known or chunk.incarnation < newest
        if chunk.sequence > known + 1:
            self._newest = {k: row for k, row in self._newest.items() if k[:2] != key}
        own: dict[tuple[str, int, int], Row] = {}
        for t in range(chunk.shape[0]):
            for n, stream in enumerate(chunk.streams):
                values = {name: column[t, n] for name, column in chunk.columns.items()}
                row = Row(self.next_number, values)
                self.next_number += 1
                self._link(row, (*key, stream), own, late)
        if not late:
            self._sequence[key] = chunk.sequence
            self._newest |= own
            if chunk.tail:
                for ended in own:
                    del self._newest[ended]
        self.evict(self.next_number - self.capacity)

    def _link(
        self,
        row: Row,
        stream: tuple[str, int, int],
        own: dict[tuple[str, int, int], Row],
        late: bool,
    ) -> None:
        before = own.get(stream, None if late else self._newest.get(stream))
        if before is not None:
            row.before, before.after = before, row
        own[stream] = row
        self.rows.append(row)

    def evict(self, oldest: int) -> None:
        self.rows = [row for row in self.rows if row.number >= oldest]

    def ready(self, n: int, frames: int = 1) -> dict[int, Row]:
        oldest = self.next_number - len(self.rows)
        return {
            row.number: row for row in self.rows if _path(row, n) and stack(row, frames, oldest)
        }

    def links(self) -> dict[int, tuple[int, int]]:
        """Number -> (number of the row before, of the row after), -1 where there is none."""
        here = {row.number for row in self.rows}
        return {
            row.number: (
                row.before.number if row.before and row.before.number in here else -1,
                row.after.number if row.after else -1,
            )
            for row in self.rows
        }


def _path(row: Row, n: int) -> list[Row]:
    """The rows of the transition that starts here, the first one aside; empty if there is none."""
    path: list[Row] = []
    while not row.is_last:
        if row.after is None:
            return []
        row = row.after
        path.append(row)
        if len(path) == n:
            break
    return path


def stack(row: Row, frames: int, oldest: int = 0) -> list[Row]:
    """The rows whose observations are seen at a row, the oldest first; empty if one has gone."""
    seen = [row]
    while len(seen) < frames:
        if seen[0].values["step_type"] == 0:
            seen.insert(0, seen[0])
        elif seen[0].before is None or seen[0].before.number < oldest:
            return []
        else:
            seen.insert(0, seen[0].before)
    return seen


def seen_at(row: Row, frames: int) -> Any:
    """The observation at a row: its own, or a stack of frames."""
    if frames == 1:
        return nest.unflatten(row.values, "obs")
    return nest.stack([nest.unflatten(one.values, "obs") for one in stack(row, frames)])


def transition(row: Row, n: int, gamma: float, transform: Any, frames: int = 1) -> dict[str, Any]:
    """The batch entries of the transition that starts at a row."""
    path = _path(row, n)
    total, product = 0.0, 1.0
    for k, later in enumerate(path, start=1):
        total += gamma ** (k - 1) * product * transform(float(later.values["reward"]))
        product *= float(later.values["discount"])
    end = path[-1]
    return {
        "obs": seen_at(row, frames),
        "obs_next": seen_at(end, frames),
        "actions": row.values["action"],
        "rewards": total,
        "discounts": gamma ** len(path) * product,
        "dones": float(end.is_last and end.values["discount"] == 0),
        "truncated": bool(end.is_last and end.values["discount"] == 1),
        "version": row.values["version"],
        "extras": nest.unflatten(row.values, "extras"),
        "indices": row.number,
    }
