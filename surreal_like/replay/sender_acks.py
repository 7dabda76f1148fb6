"""Account of one sender incarnation: its chunks that were inserted, dropped or are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from surreal_like.experience.chunk import Chunk


@dataclass(slots=True)
class SenderAcks:
    """Account of one sender incarnation.

    Attributes:
        handled: highest chunk number without a gap below it.
        handled_rows: the sender's row count there.
        inserted: rows inserted here up to there.
        dropped: rows dropped here up to there.
        seen_rows: highest row count that a chunk or a goodbye has reported.
        env_steps: of the sender, cumulative.
        episodes: of the sender, cumulative.
        ended: True after its goodbye.
        beyond: chunks received after a gap: number -> (row count there, rows, inserted or not).
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
        """Missing rows: cut before a chunk or goodbye that was received, and not received."""
        return self.seen_rows - self.handled_rows - sum(rows for _, rows, _ in self.beyond.values())

    @property
    def elsewhere(self) -> int:
        """Rows handled by another replay, or by an earlier incarnation of this one."""
        return self.handled_rows - self.inserted - self.dropped

    def handle(self, chunk: Chunk, inserted: bool) -> None:
        """Records a chunk, and closes the gap before chunks received early."""
        self.beyond[chunk.sequence] = (chunk.rows, chunk.size, inserted)
        self.see(chunk.rows)
        self.env_steps = max(self.env_steps, chunk.env_steps)
        self.episodes = max(self.episodes, chunk.episodes)
        self._move_on()

    def end(self, rows: int, sequence: int) -> None:
        """Records the goodbye: a chunk number without rows of its own."""
        self.ended = True
        if sequence > self.handled:
            self.beyond[sequence] = (rows, 0, True)
        self.see(rows)
        self._move_on()

    def see(self, rows: int) -> None:
        """Records the row count that a chunk or a goodbye reports."""
        self.seen_rows = max(self.seen_rows, rows)

    def skip(self, sequence: int, rows: int) -> None:
        """Skips chunks up to ``sequence``, which the sender has acks for: others handled them."""
        if sequence <= self.handled:
            return
        for early in sorted(n for n in self.beyond if n <= sequence):
            self._count(early)
        self.handled, self.handled_rows = sequence, rows
        self.see(rows)
        self._move_on()

    @property
    def early(self) -> dict[str, int]:
        """Rows received after a gap, ``inserted`` and ``dropped``."""
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
        """Returns the account that gave this state."""
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
