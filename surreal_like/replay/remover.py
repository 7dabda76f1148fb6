"""Decides which rows are too old to be kept; uses no clock and no socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from surreal_like.replay.storage import ColumnStorage


class Remover:
    """Removes old rows by ``learner_config.replay.evict_rule``.

    The first row that is young enough becomes the oldest; all rows after it stay, whatever their
    age.

    Args:
        max_rows: most rows that are kept, 0 for no bound.
        max_age_seconds: highest time since a row was inserted, 0 for no bound.
        max_version_lag: most versions that a row may be behind the newest one, 0 for no bound.
    """

    def __init__(
        self, max_rows: int = 0, max_age_seconds: float = 0.0, max_version_lag: int = 0
    ) -> None:
        self.max_rows = max_rows
        self.max_age_seconds, self._max_version_lag = max_age_seconds, max_version_lag
        self._ages: deque[tuple[int, float]] = deque()  # (row after a chunk, time of its insert)

    def insert(self, next_number: int, now: float) -> None:
        """Notes the time in seconds at which the rows before ``next_number`` were inserted."""
        self._ages.append((next_number, now))

    def evict(self, oldest: int) -> None:
        """Forgets the rows before ``oldest``."""
        while self._ages and self._ages[0][0] <= oldest:
            self._ages.popleft()

    def first_kept(self, storage: ColumnStorage, now: float, newest_version: int) -> int:
        """Returns the number of the oldest row that may stay."""
        first = storage.oldest
        if self.max_rows:
            first = max(first, storage.next_number - self.max_rows)
        if self.max_age_seconds:
            first = max(first, self._first_young(storage, now - self.max_age_seconds))
        if self._max_version_lag:
            first = max(first, _first_recent(storage, newest_version - self._max_version_lag))
        return first

    def _first_young(self, storage: ColumnStorage, limit: float) -> int:
        first = storage.oldest
        for end, inserted_at in self._ages:
            if inserted_at >= limit:
                break
            first = end
        return first

    def state(self, now: float) -> list[list[float]]:
        """Returns the ages of chunks in seconds, which :meth:`restore` needs beside the rows."""
        return [[end, now - inserted_at] for end, inserted_at in self._ages]

    def restore(self, state: Sequence[Sequence[float]], now: float) -> None:
        """Restores what :meth:`state` gave."""
        self._ages = deque((int(end), now - age) for end, age in state)


def _first_recent(storage: ColumnStorage, limit: int) -> int:
    first = storage.oldest
    for versions in storage.read("version"):
        recent = versions >= limit
        if recent.any():
            return first + int(recent.argmax())
        first += len(versions)
    return first
