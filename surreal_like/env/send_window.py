"""Which chunks a sender still keeps, and which of them goes out next; no socket, no clock.

An ack says up to which number everything has been handled. What is not acked is kept and
goes out again, in order, when replay has been restarted, when the connection was lost, and when
acks come but the number stands still. Numbers go on whatever happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from session.wire import Message


class Ack(NamedTuple):
    """What one start of replay tells one sender.

    Args:
        handled: highest number up to which each chunk was inserted or dropped.
        inserted: rows that this start of replay has inserted up to there.
    """

    handled: int
    inserted: int


@dataclass(slots=True)
class Kept:
    """A chunk, or the goodbye, until it is acked.

    Args:
        sequence: its number.
        message: what goes over the wire.
        rows: rows in it, 0 in the goodbye.
        size_bytes: of its columns.
    """

    sequence: int
    message: Message
    rows: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class SenderWindow:
    """The chunks between being cut and being acked.

    Args:
        max_bytes: what is kept at most, a single larger chunk excepted.
        max_chunks: how many chunks are kept at most; bounds how far an agent is ahead of replay.
        resend_seconds: how long the number may stand still while acks come.

    Attributes:
        ready: True while another chunk may be cut; otherwise the agent waits.
        pushed: rows in all chunks so far; always ``inserted + dropped + unacked``.
        inserted: rows that acks tell of as inserted, over all starts of replay.
        dropped: the other acked rows.
        unacked: rows that are kept.
        unacked_bytes: their bytes.
        resent: how often a chunk went out again.
        replay: incarnation of the replay that was last heard, 0 before.
        shard: which one it is.
    """

    max_bytes: int
    resend_seconds: float
    max_chunks: int = 1 << 30
    ready: bool = True
    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unacked: int = 0
    unacked_bytes: int = 0
    resent: int = 0
    replay: int = 0
    shard: int = 0
    _kept: dict[int, Kept] = field(default_factory=dict)
    _last: int = 0
    _next: int = 1
    _highest_sent: int = 0
    _handled: int = 0
    _largest_bytes: int = 0
    _moved_at: float = 0.0
    _acked_inserted: int = 0
    _acked_before: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """True if everything is acked."""
        return not self._kept

    @property
    def acked(self) -> int:
        """The highest number for which there is an ack, of whatever replay."""
        return self._handled

    @property
    def acked_rows(self) -> int:
        """Rows up to that number."""
        return self.pushed - self.unacked

    @property
    def filled(self) -> float:
        """Share of what may be unacked that is."""
        return max(len(self._kept) / self.max_chunks, self.unacked_bytes / self.max_bytes)

    @property
    def next_sequence(self) -> int:
        """The number of the next chunk."""
        return self._last + 1

    def keep(self, kept: Kept) -> None:
        """Takes the chunk with the next number."""
        if kept.sequence != self.next_sequence:
            raise ValueError(f"chunk {kept.sequence} kept, {self.next_sequence} is next")
        self._last = kept.sequence
        self._kept[kept.sequence] = kept
        self._largest_bytes = max(self._largest_bytes, kept.size_bytes)
        self.pushed += kept.rows
        self.unacked += kept.rows
        self.unacked_bytes += kept.size_bytes
        self._judge()

    def next_to_send(self) -> Kept | None:
        """What goes out next, None if all has been sent."""
        return self._kept.get(self._next)

    def sent(self, now: float) -> None:
        """The chunk that :meth:`next_to_send` gave has left."""
        if self._next == self._handled + 1:
            self._moved_at = now
        self.resent += self._next <= self._highest_sent
        self._highest_sent = max(self._highest_sent, self._next)
        self._next += 1

    @property
    def under_way(self) -> bool:
        """True if something was sent and is not acked."""
        return self._next > self._handled + 1

    def at(self, shard: int) -> None:
        """The shard that chunks go to from now on; what another has not acked goes again."""
        if shard != self.shard:
            self._acked_before[self.shard, self.replay] = self._acked_inserted
            self.shard, self.replay = shard, 0
            self.lost()

    def lost(self) -> None:
        """The connection was lost: what was under way may be lost with it."""
        self._next = self._handled + 1

    def on_acks(self, now: float, replay: int, ack: Ack | None) -> None:
        """Takes one message of acks.

        Args:
            now: seconds.
            replay: incarnation of the replay that speaks.
            ack: what it says to this sender, None if it does not know it.
        """
        if replay < self.replay:
            return
        if replay > self.replay:
            self._on_new_replay(replay)
        if ack is not None and self._handled < ack.handled <= self._last:
            self._advance(ack)
            self._moved_at = now

    def resend_if_still(self, now: float) -> None:
        """Call it after acks have come: sends again if they say nothing new for too long."""
        if self.under_way and now - self._moved_at >= self.resend_seconds:
            self.lost()

    def _on_new_replay(self, replay: int) -> None:
        """Another start of replay, or another shard: it has not got what is not acked.

        It counts from 0, unless chunks have gone there before.
        """
        if self.replay:
            self.lost()
        self.replay = replay
        self._acked_inserted = self._acked_before.get((self.shard, replay), 0)

    def _advance(self, ack: Ack) -> None:
        rows = 0
        for sequence in range(self._handled + 1, ack.handled + 1):
            kept = self._kept.pop(sequence)
            rows += kept.rows
            self.unacked_bytes -= kept.size_bytes
        self.unacked -= rows
        self._handled = ack.handled
        self._next = max(self._next, self._handled + 1)
        # What is handled and not inserted counts as dropped, so that no row goes uncounted.
        inserted = min(ack.inserted - self._acked_inserted, rows)
        self._acked_inserted = ack.inserted
        self.inserted += inserted
        self.dropped += rows - inserted
        self._judge()

    def _judge(self) -> None:
        room = self.max_bytes - self.unacked_bytes
        fits = len(self._kept) < self.max_chunks and self._largest_bytes <= room
        self.ready = not self._kept or fits
