"""A replay shard as its client in the learner sees it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from session.wire import Message
from session.wire.one_way_sockets import PushSocket
from session.wire.requests import DealerSocket
from surreal_like.data.sender import Sender
from surreal_like.replay.shared_memory import ANSWER_BYTES, Slab

# A shard that reads no priorities sends no batches either, so there are never many.
_UNSENT_PRIORITIES = 64
# A shard that has not answered by then lacks rows or is gone; the others get the requests.
_PATIENCE_SECONDS = 0.5
# A shard that has refused gets its next request after this time.
REFUSED_SECONDS = 0.1


@dataclass(slots=True)
class Asked:
    """Request in flight, and the slot of shared memory for its answer."""

    since: float
    slab: Slab | None = None
    slot: int = -1

    def give_back(self) -> None:
        """Gives the slot back: its answer is not needed any more, or came through the socket."""
        if self.slab is not None:
            self.slab.give_back(self.slot)
            self.slab = None


@dataclass(slots=True)
class LearnedSteps:
    """Environment steps of the rows of which the batches of a shard were made.

    Args:
        incarnation: incarnation of the shard that has given the newest one.
        before: those of its earlier incarnations.
        here: those of this one.
    """

    incarnation: int = 0
    before: int = 0
    here: int = 0

    @property
    def total(self) -> int:
        """Steps of all incarnations."""
        return self.before + self.here

    def add(self, incarnation: int, reported: Sequence[int], *, consumes: bool) -> None:
        """Adds a batch.

        Args:
            incarnation: incarnation of its shard.
            reported: steps of earlier incarnations as far as it has their accounts, and its own:
                of the batch if the shard gives each row once, else of all rows that it has taken.
            consumes: True if the shard gives each row once.
        """
        before, steps = reported
        if consumes:
            self.here += steps
            return
        if incarnation != self.incarnation:
            self.incarnation, self.before, self.here = incarnation, max(self.total, before), 0
        self.here = max(self.here, steps)

    def state(self) -> list[int]:
        """Returns plain data: the arguments."""
        return [self.incarnation, self.before, self.here]


@dataclass(slots=True)
class Shard:
    """One shard: its connection, its newest counts, and the requests that it has not answered."""

    name: str
    batches: DealerSocket
    priorities: PushSocket
    lends: bool
    asked: dict[int, Asked] = field(default_factory=dict)
    slab: Slab | None = None
    counts: Mapping[str, Any] | None = None
    key: str = ""
    lost: bool = False
    # Requests were in flight when the connection was lost: so may be their batches.
    missed: bool = False
    refused_at: float = -math.inf
    # Places of fenced senders in its ledger.
    fenced: Sequence[int] = ()
    # It has to remove late rows before it may be asked for others; the request that asks for that.
    rolls_back: bool = False
    roll_back_id: int | None = None
    unsent: deque[Message] = field(default_factory=lambda: deque(maxlen=_UNSENT_PRIORITIES))
    learned: LearnedSteps = field(default_factory=LearnedSteps)

    def send_priorities(self) -> None:
        """Sends the priorities that could not be sent at once."""
        while self.unsent and self.priorities.send(self.unsent[0]):
            self.unsent.popleft()

    def is_open(self, now: float) -> bool:
        """True if it may get requests: it is connected, answers, and has not just refused."""
        refused = now - self.refused_at < REFUSED_SECONDS
        withholds = any(now - each.since > _PATIENCE_SECONDS for each in self.asked.values())
        return not (self.lost or refused or self.rolls_back or withholds)

    def disconnect(self) -> None:
        """Marks the shard as lost and releases its shared memory.

        The old server may still write to that memory.
        """
        self.lost = True
        self.missed |= bool(self.asked)
        self.asked.clear()
        self.roll_back_id = None
        if self.slab is not None:
            self.slab.close()
            self.slab = None

    def lend(self, slots: int, slot_bytes: int) -> None:
        """Lends shared memory for answers with up to ``slot_bytes`` of large columns."""
        # Replies of a server that is gone may still lie in the socket.
        if self.lost or not self.lends or slot_bytes < ANSWER_BYTES:
            return
        if self.slab is not None:
            if self.slab.slot_bytes >= slot_bytes:
                return
            self.slab.close()
        try:
            self.slab = Slab(slots, slot_bytes)
        except OSError:
            self.slab, self.lends = None, False

    @property
    def incarnation(self) -> int:
        """Incarnation of which the counts are."""
        return Sender.parse(self.key).incarnation

    def note_fenced(self, names: Collection[str]) -> None:
        """Finds the places of these senders in its ledger."""
        if names and self.counts is not None:
            senders = self.counts["senders"].items()
            found = {rows["place"] for key, rows in senders if Sender.parse(key).name in names}
            self.fenced = sorted(found)

    def end_of(self, earlier: Sequence[int]) -> int:
        """Returns the number at which its rows ended at an earlier time.

        Args:
            earlier: incarnation and end of that time.
        """
        incarnation, end = earlier
        assert self.counts is not None  # asked for first
        counts = self.counts
        if incarnation and (counts["goes_on"] or incarnation == self.incarnation):
            return end
        # This one has begun later: what it has not restored is newer.
        return max(0, int(counts["end"] + counts["rolled_back"] - counts["added"]))

    def count(self, name: str, otherwise: float) -> float:
        """Returns a number of its newest counts, ``otherwise`` if it has none or is lost."""
        counts = None if self.lost else self.counts
        return otherwise if counts is None else float(counts.get(name, otherwise))
