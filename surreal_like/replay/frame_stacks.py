"""Stacks of frames, gathered from single rows when they are sampled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from surreal_like.data.timestep import StepType
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.stream_table import Rows

Flags = npt.NDArray[np.bool_]

_FIRST = int(StepType.FIRST)
_LAST = int(StepType.LAST)


class FrameStacks:
    """Stacks the newest ``size`` observations of a row's episode, the oldest first.

    At the beginning of an episode the first one is repeated. A row whose stack needs rows that
    have been evicted, or that never came, has no stack. Positions are those of the storage.

    Args:
        size: frames in a stack, k; with 1 a stack is the observation itself.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def complete(self, storage: ColumnStorage, positions: Rows) -> Flags:
        """True where all rows of a row's stack exist; positions of any shape."""
        found = np.ones(positions.shape, np.bool_)
        at = positions
        for _ in range(1, self.size):
            within = storage.take("step_type", at) != _FIRST
            before, there = storage.step_back(at)
            found &= there | ~within
            at = np.where(within & there, before, at)
        return found

    def positions(self, storage: ColumnStorage, positions: Rows) -> Rows:
        """Returns the positions of the rows in each stack; every row must have a stack.

        Args:
            storage: that holds the rows.
            positions: ``[B]``.

        Returns:
            ``[B, k]``; with k = 1 ``positions`` itself.
        """
        if self.size == 1:
            return positions
        stacked = np.empty((len(positions), self.size), np.int64)
        stacked[:, -1] = at = positions
        for place in range(self.size - 2, -1, -1):
            within = storage.take("step_type", at) != _FIRST
            at = np.where(within, storage.step_back(at)[0], at)
            stacked[:, place] = at
        return stacked

    def losing(self, storage: ColumnStorage, oldest: int) -> Rows:
        """Numbers of rows that would stay without their stacks if ``oldest`` were the oldest row.

        They are the next k - 1 rows of each stream that is cut there, within its episode. Call
        this before the eviction: the links to these rows are kept by the rows to be evicted.
        """
        if self.size == 1 or not len(storage):
            return np.zeros(0, np.int64)
        at = storage.torn(oldest)
        at = at[storage.take("step_type", at) != _FIRST]
        found = [at]
        for _ in range(2, self.size):
            distance = storage.distance(at)
            going = (distance > 0) & (storage.take("step_type", at) != _LAST)
            at = (at + distance)[going]
            found.append(at)
        return storage.number(np.concatenate(found))
