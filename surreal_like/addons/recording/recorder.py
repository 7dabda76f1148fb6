"""Writes down the chunks that a replay shard accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from session.process.context import Context
from surreal_like.addons.recording.about import describe
from surreal_like.addons.recording.journal import Journal
from surreal_like.addons.recording.segments import Kind
from surreal_like.data.policy_names import PolicyId
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay


class Recorder:
    """The journal of a shard: its chunks in the order in which it has accepted them.

    Acks wait until the chunks that they are for are in the file, so that a recording has all that
    was acked, and a kill loses nothing of it. Where the disk is slow, not all of them wait.

    Args:
        context: context of the shard.
        replay: the replay of the shard, after what it restores.
        goes_on: True if it goes on with all rows of the process before.
        limit_bytes: most bytes of its segments.

    Attributes:
        journal: the journal; its number is that of the next row.
        cuts: times that the replay has removed rows that came late.
    """

    def __init__(
        self, context: Context, replay: Replay, *, goes_on: bool, limit_bytes: float
    ) -> None:
        assert context.folder is not None  # the hook has looked
        self._replay = replay
        self.cuts = 0
        self.journal = Journal(
            context,
            context.folder.recording / context.name,
            describe(context.config, PolicyId.of_shard(context.name).name),
            limit_bytes=limit_bytes,
            number=self._next_number(),
        )
        self.journal.put(Kind.GO_ON if goes_on else Kind.BEGIN)
        self.flush, self.close = self.journal.flush, self.journal.close

    def _next_number(self, otherwise: int = 0) -> int:
        # A replay that counts no rows removes none, either.
        return int(self._replay.statistics().get("inserted", otherwise))

    @property
    def place(self) -> tuple[int, int]:
        """Number of the next row, and the number of cuts before it."""
        return self.journal.number, self.cuts

    def accept(self, chunk: Chunk, frames: Sequence[Any]) -> None:
        """Writes down a chunk that was inserted.

        Args:
            chunk: the chunk.
            frames: frames of its message, as received.
        """
        self.journal.put(Kind.CHUNK, frames)
        self.journal.number += chunk.size

    def cut(self) -> None:
        """Notes that the replay has removed rows that came late."""
        self.cuts += 1
        self.journal.number = self._next_number(self.journal.number)
        self.journal.put(Kind.CUT)
