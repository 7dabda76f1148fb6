"""Window of the chunks that a sender keeps, without socket and clock; sockets to the shards.

An ack carries the number up to which all chunks were handled. Unacked chunks are kept, and sent
again in order when replay was restarted, when the connection was lost, and when acks arrive whose
number does not rise. Chunk numbers always continue. A router chooses the shard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from session.process.context import Context
from session.wire import Message
from session.wire.one_way_sockets import PushSocket, SubscriberSocket
from surreal_like.data.policy_names import PolicyId
from surreal_like.experience.schemas import ACKS

# Longest time for which acks may arrive whose number does not rise.
RESEND_SECONDS = 2.0


@dataclass(slots=True)
class Kept:
    """A chunk, or the goodbye, kept until it is acked.

    Args:
        sequence: the number.
        message: message for the wire.
        rows: rows in it, 0 in the goodbye.
        size_bytes: bytes of its columns.
    """

    sequence: int
    message: Message
    rows: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class SenderWindow:
    """Window of the chunks that were cut and are not acked.

    Args:
        max_bytes: most bytes to keep, except for a single larger chunk.
        max_chunks: most chunks to keep; bounds how far an agent is ahead of replay.
        resumes: True if an earlier process may have sent the same chunks as the same sender: those
            that replay has handled are skipped. It sends to one shard only; if that has lost what
            it had acked, all chunks are cut again.

    Attributes:
        ready: True while another chunk may be cut; otherwise the agent has to wait. One that
            resumes waits for the first acks, too.
        again: True once replay has lost chunks that it had acked: all are forgotten here, and the
            next one is the first again. Its reader sets it back.
        pushed: rows in all chunks so far; always ``inserted + dropped + unacked``.
        inserted: rows that acks report as inserted, over all incarnations of replay.
        dropped: the other acked rows.
        unacked: rows that are kept.
        unacked_bytes: their bytes.
        resent: number of times that a chunk was sent again.
        replay: newest incarnation of replay from which acks arrived, 0 before.
        shard: number of its shard.
        acked: the highest number for which there is an ack, from any replay.
        next_sequence: the number of the next chunk.

    Of a sender that resumes, the rows of earlier processes count as its own.
    """

    max_bytes: int
    max_chunks: int
    resumes: bool = False
    ready: bool = True
    again: bool = False
    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unacked: int = 0
    unacked_bytes: int = 0
    resent: int = 0
    replay: int = 0
    shard: int = 0
    acked: int = 0
    next_sequence: int = 1
    _kept: dict[int, Kept] = field(default_factory=dict)
    # The highest number that replay has handled, of what an earlier process has sent, too.
    _ahead: int = 0
    _next: int = 1
    _highest_sent: int = 0
    _largest_bytes: int = 0
    _moved_at: float = 0.0
    _acked_inserted: int = 0
    _acked_before: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ready = not self.resumes

    @property
    def empty(self) -> bool:
        """True if everything is acked."""
        return not self._kept

    @property
    def acked_rows(self) -> int:
        """Rows up to that number."""
        return self.pushed - self.unacked

    @property
    def filled(self) -> float:
        """Unacked chunks or bytes as a share of their limit, the larger of the two."""
        return max(len(self._kept) / self.max_chunks, self.unacked_bytes / self.max_bytes)

    def keep(self, kept: Kept) -> None:
        """Adds the chunk with the next number."""
        if kept.sequence != self.next_sequence:
            raise ValueError(f"chunk {kept.sequence} kept, {self.next_sequence} is next")
        self.next_sequence += 1
        self._kept[kept.sequence] = kept
        self._largest_bytes = max(self._largest_bytes, kept.size_bytes)
        self.pushed += kept.rows
        self.unacked += kept.rows
        self.unacked_bytes += kept.size_bytes
        self._judge()

    def next_to_send(self) -> Kept | None:
        """Returns the next chunk to send, None if all were sent."""
        return self._kept.get(self._next)

    def sent(self, now: float) -> None:
        """Records that the chunk of :meth:`next_to_send` was sent."""
        if self._next == self.acked + 1:
            self._moved_at = now
        self.resent += self._next <= self._highest_sent
        self._highest_sent = max(self._highest_sent, self._next)
        self._next += 1

    @property
    def under_way(self) -> bool:
        """True if a chunk was sent and is not acked."""
        return self._next > self.acked + 1

    def at(self, shard: int) -> None:
        """Sets the shard for chunks; those that another shard has not acked are sent again."""
        if shard != self.shard:
            self._acked_before[self.shard, self.replay] = self._acked_inserted
            self.shard, self.replay = shard, 0
            self.lost()

    def lost(self) -> None:
        """Schedules all unacked chunks to be sent again, because they may be lost."""
        self._next = self.acked + 1

    def on_acks(
        self, now: float, replay: int, handled: int = 0, inserted: int = 0, dropped: int = 0
    ) -> None:
        """Applies one message of acks.

        Args:
            now: clock time in seconds.
            replay: incarnation of the replay that sent it.
            handled: highest number up to which it has inserted or dropped each chunk of this
                sender; 0 if the message has no ack for it.
            inserted: rows that it has inserted up to there.
            dropped: rows that it has dropped up to there.
        """
        if replay < self.replay:
            return
        if replay > self.replay:
            self._on_new_replay(replay, handled)
        known = handled
        if self.resumes:
            handled = min(handled, self.next_sequence - 1)
        if self.acked < handled < self.next_sequence:
            self._advance(handled, inserted)
            self._moved_at = now
        if self.resumes and known >= self._ahead:
            self._ahead = known
            self.inserted, self.dropped = inserted, dropped
            self.pushed = inserted + dropped + self.unacked

    def resend_if_still(self, now: float) -> None:
        """Sends again if acks have arrived without progress for too long; call it after acks."""
        if self.under_way and now - self._moved_at >= RESEND_SECONDS:
            self.lost()

    def _on_new_replay(self, replay: int, handled: int) -> None:
        """Switches to another incarnation or shard of replay, which lacks the unacked chunks.

        Its count of inserted rows begins at 0, unless chunks have gone there before.
        """
        if self.resumes and handled < self.acked:
            shard, resent = self.shard, self.resent
            type(self).__init__(self, self.max_bytes, self.max_chunks, resumes=True)
            self.shard, self.resent, self.again = shard, resent, True
        if self.replay:
            self.lost()
        self.replay = replay
        self._judge()
        self._acked_inserted = self._acked_before.get((self.shard, replay), 0)

    def _advance(self, handled: int, inserted: int) -> None:
        rows = 0
        for sequence in range(self.acked + 1, handled + 1):
            kept = self._kept.pop(sequence)
            rows += kept.rows
            self.unacked_bytes -= kept.size_bytes
        self.unacked -= rows
        self.acked = handled
        self._next = max(self._next, self.acked + 1)
        # Rows handled but not inserted count as dropped, so that every row is counted.
        # Of a closed incarnation replay has no numbers: all that it still gets is dropped.
        gained = max(0, min(inserted - self._acked_inserted, rows))
        self._acked_inserted = inserted
        self.inserted += gained
        self.dropped += rows - gained
        self._judge()

    def skip(self) -> bool:
        """Takes the next chunk for acked if replay has handled it before; its rows count already.

        Returns False if it has not: then it is to be sent.
        """
        if self.next_sequence > self._ahead or self._kept:
            return False
        self.next_sequence += 1
        self.acked += 1
        self._next = self.next_sequence
        return True

    def _judge(self) -> None:
        room = self.max_bytes - self.unacked_bytes
        fits = len(self._kept) < self.max_chunks and self._largest_bytes <= room
        answered = self.replay > 0 or not self.resumes
        self.ready = answered and (not self._kept or fits)


class ShardConnection:
    """The sockets between an agent and one shard.

    Args:
        context: context of this process.
        shard: number of the shard.
        policy: name of the policy whose rows the shard keeps.

    Attributes:
        away_since: clock time in seconds at which the connection was lost, or first attempted;
            infinity while it exists.
        lost: True if the newest :meth:`look` found that the connection was lost.
    """

    def __init__(self, context: Context, shard: int, policy: str) -> None:
        self.name = name = PolicyId(policy).shard(shard)
        self.shard = shard
        self.experience: PushSocket = context.wire.push(f"{name}.experience")
        self.acks: SubscriberSocket = context.wire.subscriber(
            f"{name}.acks", ACKS, name=context.name
        )
        address = context.wire.addresses[f"{name}.experience"].connect
        # In one process there is no connection that could be lost.
        self.away_since = math.inf if address.startswith("inproc:") else context.clock.now()
        self.lost = False
        self.look(context.clock.now())

    def look(self, now: float) -> None:
        """Reads the events of the connection."""
        self.lost = False
        for made in self.experience.connection_events():
            self.lost |= not made
            self.away_since = math.inf if made else now
        # The connection may have been made before its events were watched.
        if self.away_since < math.inf and self.experience.writable():
            self.away_since = math.inf

    def close(self) -> None:
        """Closes both sockets; messages that were not sent yet are discarded."""
        self.experience.close()
        self.acks.close()


# Longest time for which an agent's shard may be away before another one takes its place.
FAILOVER_SECONDS = 5.0


class ShardRouter:
    """Chooses the shard that an agent's chunks go to.

    Each agent has one shard, its index modulo their number, because a socket connected to several
    would alternate between them and tear streams apart. When that shard is away for too long the
    next one replaces it; when it is back and no chunk is in flight elsewhere, the agent returns.
    What sends the same each time waits for its shard, which alone knows what it has had of it.

    Args:
        context: context of this process.
        policy: name of the policy that acted.

    Attributes:
        way: the present connection.
    """

    def __init__(self, context: Context, policy: str) -> None:
        self._context, self._policy = context, policy
        connects, shard = context.component.connects, 0
        while f"{PolicyId(policy).shard(shard)}.experience" in connects:
            shard += 1
        self._stays = shard == 1 or bool(context.component.sends)
        self._shards = shard
        self._home = self.way = self._connect(context.component.index % self._shards)

    def look(self, now: float) -> bool:
        """Returns True if chunks in flight may be lost: the connection was lost or is given up."""
        self._home.look(now)
        if self.way is not self._home:
            self.way.look(now)
        if now - self.way.away_since < FAILOVER_SECONDS or self._stays:
            return self.way.lost
        self._take((self.way.shard + 1) % self._shards)
        return True

    @property
    def returning(self) -> bool:
        """True if the agent's own shard is back: no new chunks go to the other one."""
        return self.way is not self._home and self._home.away_since == math.inf

    def go_home(self) -> None:
        """Returns to the agent's own shard; call it when no chunk is in flight."""
        self._take(self._home.shard)

    def _take(self, shard: int) -> None:
        context, before = self._context, self.way
        self.way = self._home if shard == self._home.shard else self._connect(shard)
        if before is not self._home:
            before.close()
        if self.way.away_since < math.inf:
            # The new shard gets the full failover time to connect.
            self.way.away_since = context.clock.now()
        context.event("rerouted", f"experience goes to {self.way.name}, not to {before.name}")

    def _connect(self, shard: int) -> ShardConnection:
        return ShardConnection(self._context, shard, self._policy)
