"""The episodes that end in a chunk: counted all at once when it is cut, or at once where needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from session.nest import Array
from surreal_like.data.timestep import StepType
from surreal_like.env.base import Info
from surreal_like.env.episodes import EpisodeCounter, EpisodeSummary

# A plain number: numpy takes five times as long to compare with a member of an enumeration.
_LAST = int(StepType.LAST)

_RECENT = 1000

Flags = npt.NDArray[np.bool_]
Row = dict[str, Array]


class ChunkEpisodes:
    """Counts the episodes of N streams, and keeps their summaries until their chunk is sent.

    A row that has been observed is written once its action is known. Only then what ended at it
    belongs to the chunk. Steps that tell nothing but rewards and ends are counted when the chunk
    is cut, from its columns, unless somebody asks before.

    Args:
        num_envs: N.

    Attributes:
        waiting: True while the summaries of a row that is not yet written wait for that.
        recent: summaries of the newest episodes that were counted, for whoever reports them and
            then clears it.
    """

    def __init__(self, num_envs: int) -> None:
        self._counter = EpisodeCounter(num_envs)
        self._uncounted: list[Row] = []
        self._newest: list[EpisodeSummary] = []
        self.waiting = False
        self.recent: deque[EpisodeSummary] = deque(maxlen=_RECENT)
        self._written: list[EpisodeSummary] = []

    def reset(self) -> None:
        """Every stream begins an episode; those that were open are forgotten."""
        self._counter.reset()
        self._newest = []

    def observe(self, row: Row, info: Info) -> None:
        """Takes a step; what it says beyond rewards and ends is counted now."""
        if info:
            self.count()
            self._count(row, info)
        else:
            self._uncounted.append(row)

    @property
    def newest(self) -> list[EpisodeSummary]:
        """Of the newest step."""
        self.count()
        return self._newest

    def num_newest(self, last: Flags) -> int:
        """How many episodes ended at the newest step, which had such ends."""
        return int(np.count_nonzero(last)) if self._uncounted else len(self._newest)

    def count(self) -> None:
        """Counts all steps that have not been."""
        uncounted, self._uncounted = self._uncounted, []
        for row in uncounted:
            self._count(row, {})

    def _count(self, row: Row, info: Info) -> None:
        if self.waiting:
            # A row comes after the one before has been written.
            self.write({})
        self._newest = self._counter.update(
            info.get("raw_reward", row["reward"]),
            ended(row),
            info.get("metrics"),
            info.get("life_lost"),
        )
        self.waiting = bool(self._newest)
        self.recent += self._newest

    def write(self, own: Mapping[str, float]) -> None:
        """The newest row that was counted has been written.

        own: the agent's own numbers, which go with each of its episodes.
        """
        summaries = self._newest if self.waiting else []
        if own:
            summaries = [{**each, "metrics": {**own, **each["metrics"]}} for each in summaries]
        self._written += summaries
        self.waiting = False

    def take(self, columns: Mapping[str, Array], overlap: int) -> list[EpisodeSummary]:
        """The summaries for a chunk whose newest rows, the overlap left out, may be uncounted."""
        if self._uncounted:
            self.write({})
            stop = len(columns["reward"]) - overlap
            rows = slice(stop - len(self._uncounted), stop)
            self._uncounted.clear()
            last = columns["step_type"][rows] == _LAST
            found = self._counter.update_many(columns["reward"][rows], last)
            self._written += found
            self.recent += found
        written, self._written = self._written, []
        return written


def ended(row: Row) -> Flags:
    """Where an episode ends at a row, bool ``[N]``."""
    return row["terminated"] | row["truncated"]
