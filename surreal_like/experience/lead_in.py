"""Lead-in: the frames before an unroll, from which the stacks of its first rows are made."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from session.nest import Array
from surreal_like.data.timestep import StepType


class LeadIn:
    """Keeps the last frames of each chunk for the next one; needs every chunk, in order.

    Args:
        frames: number kept of each stream: one less than a stack has.
    """

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._kept: dict[str, Array] = {}

    def take(self, columns: Mapping[str, Array], *, overlap: int = 0) -> dict[str, Array]:
        """Returns the frames before the first row of a chunk, and keeps its last ones.

        Args:
            columns: of the chunk, ``[T, N, ...]``; they must not change later.
            overlap: rows at its end that the next chunk begins with.

        Returns:
            Column of observations -> ``[frames, N, ...]``, the oldest first; where an episode
            begins less than so many rows before, its first frame is repeated.
        """
        if not self._frames:
            return {}
        first = columns["step_type"] == StepType.FIRST
        wanted = self._wanted(first, overlap)
        found: dict[str, Array] = {}
        for name, column in columns.items():
            if name.partition("/")[0] == "obs":
                found[name] = lead = self._begun(name, column, first[0])
                self._kept[name] = _rows_of(lead, column, wanted)
        return found

    def _begun(self, name: str, column: Array, first: npt.NDArray[np.bool_]) -> Array:
        """Returns the kept frames; where an episode begins with the chunk, its first frame."""
        shape = (self._frames, *column.shape[1:])
        lead = self._kept.get(name)
        if lead is None:
            lead = np.zeros(shape, column.dtype)
        if first.any():
            lead = lead.copy()
            lead[:, first] = column[0, first]
        return lead

    def _wanted(self, first: npt.NDArray[np.bool_], overlap: int) -> npt.NDArray[np.int64]:
        """Numbers of the rows before the next chunk, ``[frames, N]``; negative: of the lead-in."""
        rows, lead = np.arange(len(first)), self._frames
        begun = np.where(first, rows[:, None], -lead).max(axis=0)
        before = len(first) - overlap + np.arange(-lead, 0)
        wanted: npt.NDArray[np.int64] = np.maximum(before[:, None], begun)
        return wanted


def _rows_of(lead: Array, column: Array, wanted: npt.NDArray[np.int64]) -> Array:
    streams = np.arange(wanted.shape[1])
    rows: Array = column[np.maximum(wanted, 0), streams]
    earlier = wanted < 0
    if earlier.any():
        rows[earlier] = lead[wanted, streams][earlier]
    return rows
