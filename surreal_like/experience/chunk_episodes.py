"""Episodes that end in a chunk: counted together when it is cut, or earlier where needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from session.nest import Array
from surreal_like.data.episodes import EpisodeCounter, EpisodeSummary
from surreal_like.data.timestep import LAST, Flags
from surreal_like.env.environment import Info
from surreal_like.experience.chunk import Chunk

RECENT = 1000

Row = dict[str, Array]


class ChunkEpisodes:
    """Counts the episodes of N streams, and keeps their summaries until their chunk is sent.

    A row is written once its action is known. Only then the episodes that ended at it belong to
    the chunk. Steps with rewards and ends only are counted when the chunk is cut, from its
    columns, unless their counts are needed before.

    Args:
        num_envs: N.

    Attributes:
        waiting: True while there are summaries of a row that is not yet written.
        recent: summaries of the newest episodes that were counted; cleared by the caller that
            reports them.
    """

    def __init__(self, num_envs: int) -> None:
        self._counter = EpisodeCounter(num_envs)
        self._uncounted: list[Row] = []
        self._newest: list[EpisodeSummary] = []
        self.waiting = False
        self.recent: deque[EpisodeSummary] = deque(maxlen=RECENT)
        self._written: list[EpisodeSummary] = []

    def reset(self) -> None:
        """Begins an episode in every stream; open episodes are discarded."""
        self._counter.reset()
        self._newest = []

    def observe(self, row: Row, info: Info) -> None:
        """Adds a step; one with an ``info`` is counted now."""
        if info:
            self.count()
            self._count(row, info)
        else:
            self._uncounted.append(row)

    def discard(self) -> None:
        """Adds a step at which all streams end without an episode of their own."""
        self.count()
        if self.waiting:
            # The previous row has been written before this one came.
            self.write({})
        self._counter.discard()
        self._newest = []

    @property
    def newest(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended at the newest step."""
        self.count()
        return self._newest

    def num_newest(self, last: Flags) -> int:
        """Returns how many episodes ended at the newest step, whose ends are ``last``."""
        return last.tobytes().count(1) if self._uncounted else len(self._newest)

    def count(self) -> None:
        """Counts all steps that are not counted yet."""
        uncounted, self._uncounted = self._uncounted, []
        for row in uncounted:
            self._count(row, {})

    def _count(self, row: Row, info: Info) -> None:
        if self.waiting:
            # The previous row has been written before this one came.
            self.write({})
        self._newest = self._counter.update(
            info.get("raw_reward", row["reward"]),
            row["terminated"] | row["truncated"],
            info.get("metrics"),
            info.get("life_lost"),
            begun="final_obs" in info,
            absent=info.get("absent_streams"),
        )
        self.waiting = bool(self._newest)
        self.recent += self._newest

    def add(self, episodes: list[EpisodeSummary]) -> None:
        """Adds episodes that others have counted, which are in the next chunk."""
        self._written += episodes

    def write(self, own: Mapping[str, float]) -> None:
        """Marks the newest counted row as written.

        own: metrics of the agent, added to each episode that ended at the row.
        """
        summaries = self._newest if self.waiting else []
        if own:
            summaries = [{**each, "metrics": {**own, **each["metrics"]}} for each in summaries]
        self._written += summaries
        self.waiting = False

    def take(self, chunk: Chunk) -> list[EpisodeSummary]:
        """Returns the summaries for a chunk; counts its uncounted rows, without the overlap."""
        if self._uncounted:
            self.write({})
            columns, stop = chunk.columns, chunk.length
            rows = slice(stop - len(self._uncounted), stop)
            self._uncounted.clear()
            last = columns["step_type"][rows] == LAST
            found = self._counter.update_many(columns["reward"][rows], last)
            self._written += found
            self.recent += found
        written, self._written = self._written, []
        return written
