"""Runs of consecutive rows that were acted with one version, for weights by age."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

_LEAST_ROOM = 64
_START, _VERSION, _READY = range(3)


class VersionRuns:
    """Cuts rows 0, 1, 2, ... into runs of one version each, and counts the ready rows of each.

    Rows come in the order of their numbers, and those of a chunk mostly have one version, so there
    are about as many runs as chunks.
    """

    def __init__(self) -> None:
        self._table: Counts = np.zeros((3, _LEAST_ROOM), np.int64)
        self._begin = self._end = 0
        self._next_number = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def starts(self) -> Counts:
        """Number of the first row of each run, rising."""
        return self._table[_START, self._begin : self._end]

    @property
    def versions(self) -> Counts:
        """Version of each run."""
        return self._table[_VERSION, self._begin : self._end]

    @property
    def ready(self) -> Counts:
        """Ready rows of each run."""
        return self._table[_READY, self._begin : self._end]

    @property
    def spans(self) -> Counts:
        """Rows of each run, ready or not."""
        return np.diff(self.starts, append=self._next_number)

    def append(self, first: int, versions: Counts, ready: npt.NDArray[np.bool_]) -> None:
        """Adds the rows from ``first`` on, which follow the last ones; both arrays ``[rows]``."""
        if not len(versions):
            return
        changes = np.flatnonzero(versions[1:] != versions[:-1]) + 1
        begins = np.concatenate([[0], changes])
        counts = np.add.reduceat(ready, begins, dtype=np.int64)
        self._next_number = first + len(versions)
        if len(self) and self.versions[-1] == versions[0]:
            self.ready[-1] += counts[0]
            begins, counts = begins[1:], counts[1:]
        self._make_room(len(begins))
        new = slice(self._end, self._end + len(begins))
        self._table[:, new] = (first + begins, versions[begins], counts)
        self._end = new.stop

    def _make_room(self, runs: int) -> None:
        if self._end + runs <= self._table.shape[1]:
            return
        kept = self._table[:, self._begin : self._end]
        table = np.zeros((3, max(2 * (len(self) + runs), _LEAST_ROOM)), np.int64)
        table[:, : len(self)] = kept
        self._table, self._begin, self._end = table, 0, len(self)

    def count(self, numbers: Counts, by: int = 1) -> None:
        """Counts existing rows as ready; with ``by`` -1, as not ready any more."""
        of = np.searchsorted(self.starts, numbers, side="right") - 1
        np.add.at(self.ready, of, by)

    def cut(self, oldest: int, gone: Counts) -> None:
        """Forgets the rows before ``oldest``.

        Args:
            oldest: the first row that stays.
            gone: numbers of the ready rows among those that go, rising.
        """
        starts = self.starts
        if not len(starts) or oldest <= starts[0]:
            return
        if oldest >= self._next_number:
            self._begin = self._end
            return
        left = int(np.searchsorted(starts, oldest, side="right")) - 1
        # Some rows of the run in which the cut lies stay.
        self.ready[left] -= len(gone) - int(np.searchsorted(gone, starts[left]))
        starts[left] = oldest
        self._begin += left
