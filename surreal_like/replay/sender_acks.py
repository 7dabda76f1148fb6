"""The account of one sender incarnation: which of its chunks have been handled, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from surreal_like.data.chunk import Chunk


@dataclass(slots=True)
class SenderAcks:
    """One sender incarnation.

    Attributes:
        handled: highest chunk number without a gap below it.
        handled_rows: the sender's row count there.
        inserted: rows inserted here up to there.
        dropped: rows dropped here up to there.
        seen_rows: highest row count that a chunk or a goodbye has named.
        env_steps: of the sender, cumulative.
        episodes: of the sender, cumulative.
        ended: True after its goodbye.
        beyond: chunks that came after a gap: number -> (row count there, rows, inserted or not).
    """

    handled: int = 0
    handled_rows: int = 0
    inserted: int = 0
    dropped: int = 0
    seen_rows: int = 0
    env_steps: int = 0
    episodes: int = 0
    ended: bool = False
    beyond: dict[int, tuple[int, int, bool]] = field(default_factory=dict)

    @property
    def holes(self) -> int:
        """Rows that were cut before something that was seen, and have not come."""
        return self.seen_rows - self.handled_rows - sum(rows for _, rows, _ in self.beyond.values())

    @property
    def elsewhere(self) -> int:
        """Rows that another replay, or an earlier start of this one, has handled."""
        return self.handled_rows - self.inserted - self.dropped

    def handle(self, chunk: Chunk, inserted: bool) -> None:
        """Notes a chunk and moves on over what had come before its turn."""
        self.beyond[chunk.sequence] = (chunk.rows, chunk.size, inserted)
        self.see(chunk.rows)
        self.env_steps = max(self.env_steps, chunk.env_steps)
        self.episodes = max(self.episodes, chunk.episodes)
        self._move_on()

    def end(self, rows: int, sequence: int) -> None:
        """The goodbye has come: a number without rows of its own."""
        self.ended = True
        if sequence > self.handled:
            self.beyond[sequence] = (rows, 0, True)
        self.see(rows)
        self._move_on()

    def see(self, rows: int) -> None:
        """The sender has cut this many rows, as a chunk or a goodbye says."""
        self.seen_rows = max(self.seen_rows, rows)

    def skip(self, sequence: int, rows: int) -> None:
        """The sender has acks up to ``sequence``: what did not come here went elsewhere."""
        if sequence <= self.handled:
            return
        for early in sorted(n for n in self.beyond if n <= sequence):
            self._count(early)
        self.handled, self.handled_rows = sequence, rows
        self.see(rows)
        self._move_on()

    @property
    def early(self) -> dict[str, int]:
        """Rows that came after a gap, ``inserted`` and ``dropped``."""
        entries = self.beyond.values()
        return {
            "inserted": sum(rows for _, rows, inserted in entries if inserted),
            "dropped": sum(rows for _, rows, inserted in entries if not inserted),
        }

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restored` makes the same account."""
        return {
            **asdict(self),
            "beyond": [[number, *entry] for number, entry in self.beyond.items()],
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> SenderAcks:
        """The account that gave this state."""
        beyond = {number: (at, rows, inserted) for number, at, rows, inserted in state["beyond"]}
        return cls(**{**state, "beyond": beyond})

    def _move_on(self) -> None:
        while self.handled + 1 in self.beyond:
            self.handled += 1
            self.handled_rows = self._count(self.handled)

    def _count(self, sequence: int) -> int:
        rows_there, rows, inserted = self.beyond.pop(sequence)
        if inserted:
            self.inserted += rows
        else:
            self.dropped += rows
        return rows_there
