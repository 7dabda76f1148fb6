"""Client of replay in the learner: requests batches ahead of their use, from all shards."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import RunError
from session.process.clock import Clock, boot_number
from session.process.periodic import Every
from session.wire import Message, Wire
from session.wire.endpoint import IPC
from session.wire.one_way_sockets import Socket
from surreal_like.data.batch import Collate, Columns, Place, Sampled, split
from surreal_like.data.sender import Sender
from surreal_like.experience.schemas import ANSWERS
from surreal_like.replay.shard_connection import REFUSED_SECONDS, Asked, LearnedSteps, Shard
from surreal_like.replay.shared_memory import HERE, large_bytes
from surreal_like.replay.storage import SENDER


class WeightedRoundRobin:
    """Weighted round robin by credits; deterministic.

    In each turn every entry earns its share of the weights as credit; the entry with the most
    credit is chosen and pays 1. So the turns of each entry stay close to its share.

    Args:
        count: number of entries.
        in_a_row: consecutive turns of a chosen entry.
    """

    def __init__(self, count: int, *, in_a_row: int = 1) -> None:
        self._credit = [0.0] * count
        self._in_a_row = in_a_row
        self._chosen = self._left = 0

    def choose(self, weights: Sequence[float]) -> int | None:
        """Returns the index of the next entry, None if all weights are 0.

        Args:
            weights: one per entry, 0 or above; with 0 an entry gets no turn and loses its credit.
        """
        if self._left and weights[self._chosen]:
            self._left -= 1
            return self._chosen
        total = sum(weights)
        if not total:
            return None
        for index, weight in enumerate(weights):
            self._credit[index] = self._credit[index] + weight / total if weight else 0.0
        chosen = max(
            (index for index, weight in enumerate(weights) if weight),
            key=lambda index: self._credit[index],
        )
        self._credit[chosen] -= 1.0
        self._chosen, self._left = chosen, self._in_a_row - 1
        return chosen


_MOST = 20
_SECONDS = 3.0
# Bounded, because reasons may hold numbers that change.
_REASONS = 100


class Refusals:
    """Counts refusals since the last batch, of all shards together.

    Args:
        clock: measures the time since the first of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: set[str] = set()
        self._new: list[str] = []
        self._in_a_row = 0
        self._first = ""
        self._since = math.inf

    def add(self, shard: str, reason: str) -> None:
        """Adds one refusal."""
        line = f"{shard}: {reason}"
        if line not in self._known and len(self._known) < _REASONS:
            self._known.add(line)
            self._new.append(line)
        if not self._in_a_row:
            self._first, self._since = line, self._clock.now()
        self._in_a_row += 1

    def clear(self) -> None:
        """Ends the series of refusals, because a batch has come."""
        self._in_a_row = 0

    @property
    def reason(self) -> str:
        """The first reason since the last batch, with its shard; empty without a refusal."""
        return self._first if self._in_a_row else ""

    def pop_new(self) -> list[str]:
        """Returns the reasons that are new since the last call, each with its shard."""
        new, self._new = self._new, []
        return new

    def check(self) -> None:
        """Raises RunError with the first reason after 20 refusals in a row and at least 3 s."""
        if self._in_a_row >= _MOST and self._clock.now() - self._since >= _SECONDS:
            raise RunError(
                f"replay gives no batch, every request is refused: {self._first} "
                f"({self._in_a_row} times)"
            )


_KEEP_FINISHED = 1000
_COUNTS_SECONDS = 0.25


@dataclass(slots=True)
class _Answer:
    """One reply, with the batches that are left of it."""

    left: int
    batches: Iterator[Sampled]
    asked: Asked


class ReplayClient:
    """Keeps requests in flight and returns one batch after the other.

    Each request goes to one shard, chosen in proportion to what the shards hold (sampleable rows,
    or their mass where rows are drawn by priority), so every row is as likely as if all lay in one.
    A shard that is lost, or that does not answer, gets no requests until it answers again.
    Where rows are sampled only once, all shards get the same number of requests.

    Args:
        wire: makes the sockets.
        clock: measures the time spent waiting.
        shards: names of the replay shards.
        batch_size: rows in a batch.
        batches_per_request: batches that one reply carries.
        requests_in_flight: number of them over all shards; at least one per shard where rows
            are sampled only once.
        collate: makes the batches of a reply, one at a time; it may reuse memory.
        consumes: rows are sampled only once.

    Attributes:
        refusals: refused requests, with the reasons.
        version: newest that this learner has published; replay may leave out rows that are too old.
        env_steps: environment steps of the whole run; replay's schedules go by them.
        since: batches of a replay that consumes are left out if an older version acted in them.
        iteration: updates so far, for the same.
        rows_left_out: rows of the batches that were left out because of ``since``, or that had
            rows of fenced senders.
        fenced: names of guests whose rows are not used any more.
    """

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        *,
        shards: Sequence[str],
        batch_size: int,
        batches_per_request: int = 8,
        requests_in_flight: int = 2,
        collate: Collate = split,
        consumes: bool = False,
    ) -> None:
        self.version = self.env_steps = self.iteration = self.since = self.rows_left_out = 0
        self._clock = clock
        self._boot = boot_number()
        self._collate = collate
        self._fields = {"batch_size": batch_size, "batches": batches_per_request}
        self._in_flight = requests_in_flight
        self._consumes = consumes
        # A second request in a row finds the shard awake, with warm caches.
        self._turns = WeightedRoundRobin(len(shards), in_a_row=requests_in_flight)
        self._counts_due = Every(seconds=_COUNTS_SECONDS, clock=clock.now)
        # While more batches than this are ready, no request is sent.
        self._enough = batches_per_request * (requests_in_flight - 1)
        self._ready: deque[_Answer] = deque()
        self._used: Asked | None = None
        self._finished: list[dict[str, Any]] = []
        self._missed = False
        self.fenced: set[str] = set()
        self._ends: Mapping[str, Sequence[int]] = {}
        self.refusals = Refusals(clock)
        self._shards = [
            Shard(
                name,
                wire.dealer(f"{name}.batches", ANSWERS),
                wire.push(f"{name}.priorities"),
                lends=HERE and wire.addresses[f"{name}.batches"].connect.startswith(IPC),
            )
            for name in shards
        ]

    def sockets(self) -> list[Socket]:
        """Returns the sockets that wake a learner that waits for data."""
        return [shard.batches for shard in self._shards]

    @property
    def waiting(self) -> int:
        """Number of batches that are ready."""
        return sum(answer.left for answer in self._ready)

    def tick(self, *, ask: bool = True) -> bool:
        """Reads replies and, with ``ask``, keeps requests in flight; True if a reply came."""
        came = False
        for index, shard in enumerate(self._shards):
            for made in shard.batches.connection_events():
                if made:
                    shard.lost = False
                else:
                    shard.disconnect()
            while (reply := shard.batches.receive()) is not None:
                came = True
                self._take(index, shard, reply)
            shard.send_priorities()
        if self._counts_due():
            self.ask_counts()
        if ask and self.waiting <= self._enough:
            self._ask_all() if self._consumes else self._ask_in_turn()
        return came

    def _ask_all(self) -> None:
        most, now = max(1, self._in_flight // len(self._shards)), self._clock.now()
        for shard in self._shards:
            if shard.rolls_back or now - shard.refused_at < REFUSED_SECONDS:
                continue
            while len(shard.asked) < most and self._ask(shard):
                pass

    def _ask_in_turn(self) -> None:
        """Sends several requests at once, when half are answered: each message costs a wake-up."""
        now = self._clock.now()
        open_ones = [shard.is_open(now) for shard in self._shards]
        under_way = sum(
            len(shard.asked) for shard, asked in zip(self._shards, open_ones, strict=True) if asked
        )
        if under_way > self._in_flight // 2:
            return
        for _ in range(self._in_flight - under_way):
            shard = self._next_shard(open_ones)
            if shard is None or not self._ask(shard):
                return

    def _next_shard(self, open_ones: list[bool]) -> Shard | None:
        """Returns the shard for the next request, None if none is open."""
        held = [shard.count("mass", 0.0) for shard in self._shards]
        if not any(held):
            held = [1.0] * len(held)
        weights = [mass * is_open for mass, is_open in zip(held, open_ones, strict=True)]
        chosen = self._turns.choose(weights)
        return None if chosen is None else self._shards[chosen]

    def _ask(self, shard: Shard) -> bool:
        others = (each.count("least", math.inf) for each in self._shards if each is not shard)
        progress = {
            "version": self.version,
            "env_steps": self.env_steps,
            "iteration": self.iteration,
            "since": self.since,
            "least": min(others, default=math.inf),
        }
        asked = Asked(self._clock.now())
        place: dict[str, Any] = {}
        if shard.slab is not None and (lent := shard.slab.lend()) is not None:
            asked.slab, (asked.slot, place) = shard.slab, lent
        request_id = shard.batches.send("sample", {**self._fields, **progress, **place})
        if request_id is None:
            asked.give_back()
            return False
        shard.asked[request_id] = asked
        return True

    def _take(self, index: int, shard: Shard, reply: Message) -> None:
        fields = reply.fields
        if shard.missed and shard.asked and fields["id"] >= min(shard.asked):
            # The shard has a request of the new connection, so it has discarded the older ones.
            shard.missed, self._missed = False, True
        counts = fields.get("counts")
        if counts is not None:
            self._finished.extend(counts["finished"])
            del self._finished[:-_KEEP_FINISHED]
            shard.counts = counts
            shard.key = Sender.of(reply).key
            self._send_news(shard, counts, fields["id"])
        # A refusal ends a request as a batch does.
        asked = shard.asked.pop(fields["id"], None) or Asked(self._clock.now())
        if reply.kind != "batch":
            asked.give_back()
            if reply.kind == "refused":
                self.refusals.add(shard.name, str(fields.get("reason", "without a reason")))
                shard.refused_at = self._clock.now()
            return
        self.refusals.clear()
        arrays, placed = dict(reply.arrays), fields.get("placed")
        if placed is None:
            asked.give_back()
        elif asked.slab is None:
            return  # the server was lost, and the memory for its answers was released
        else:
            arrays |= asked.slab.columns(asked.slot, placed)
        shard.lend(2 * self._in_flight + 1, large_bytes(arrays))
        stamps = fields.get("stamps") or {}
        if stamps:
            stamps |= {"requested": asked.since, "received": self._clock.now()}
            if stamps.get("boot") != self._boot:
                stamps.pop("sampled", None)
        batches = fields["batches"]
        sampled = self._make_batches(index, reply, stamps, self._collate(arrays, batches))
        self._ready.append(_Answer(batches, sampled, asked))

    def _make_batches(
        self, shard: int, reply: Message, stamps: Mapping[str, float], batches: Iterable[Columns]
    ) -> Iterator[Sampled]:
        """Yields the batches of a reply, when they are asked for."""
        fields, incarnation = reply.fields, reply.sender.incarnation
        last, returns, env_steps = fields.get("last"), fields.get("returns"), fields["env_steps"]
        place = None
        if "place" in fields:
            rows, cuts = fields["place"]
            place = Place(rows, cuts, fields.get("drawn", ()))
        for columns in batches:
            yield Sampled(columns, shard, incarnation, stamps, last, returns, env_steps, place)
            if self._consumes:
                # Of all batches of the answer together.
                env_steps = (0, 0)

    def next(self) -> Sampled | None:
        """Returns the next batch, None if none is ready; it is valid until the one after it."""
        while self._ready:
            if self._used is not None:
                self._used.give_back()
                self._used = None
            answer = self._ready[0]
            answer.left -= 1
            if not answer.left:
                self._used = self._ready.popleft().asked
            sampled = next(answer.batches)
            if not self.leaves_out(sampled):
                return sampled
        return None

    def leaves_out(self, sampled: Sampled) -> bool:
        """Returns True for a batch that must not be learned from any more, and counts its rows.

        What is kept for later is asked about again: rules may have changed meanwhile.
        """
        columns = sampled.columns
        old = self._consumes and self.since and columns["version"].min() < self.since
        fenced = sampled.last is None and self._is_fenced(sampled.shard, columns)
        if not old and not fenced:
            return False
        self.rows_left_out += columns["version"].size
        # Agents that sent its newer rows wait for a version that has learned from them.
        self._missed |= bool(columns["version"].max() >= self.since)
        return True

    def count_steps(self, sampled: Sampled) -> None:
        """Counts the environment steps of the rows of a batch that is learned from."""
        if sampled.env_steps is not None:
            learned = self._shards[sampled.shard].learned
            learned.add(sampled.incarnation, sampled.env_steps, consumes=self._consumes)

    @property
    def learned_steps(self) -> int:
        """Environment steps of the rows of which the batches so far were made, over all shards."""
        return sum(shard.learned.total for shard in self._shards)

    def save_learned(self) -> dict[str, list[int]]:
        """Returns name of each shard -> its part of :attr:`learned_steps`, for a file."""
        return {shard.name: shard.learned.state() for shard in self._shards}

    def restore_learned(self, learned: Mapping[str, Sequence[int]]) -> None:
        """Restores a result of :meth:`save_learned`; shards that it lacks begin anew."""
        for shard in self._shards:
            shard.learned = LearnedSteps(*learned.get(shard.name, ()))

    def _is_fenced(self, shard: int, columns: Columns) -> bool:
        """Returns True if a batch that was sampled before a fence has rows of its sender."""
        places = self._shards[shard].fenced
        return bool(places) and SENDER in columns and bool(np.isin(columns[SENDER], places).any())

    def pop_missed(self) -> bool:
        """Returns True, once, after batches that agents may wait for were lost or left out."""
        missed, self._missed = self._missed, False
        return missed

    def ask_counts(self) -> None:
        """Requests the counts of every shard, as ticks do periodically; a later tick reads them."""
        for shard in self._shards:
            shard.batches.send("counts")

    def drain(self) -> None:
        """Makes every shard accept all rows, without its limiter; may be repeated."""
        for shard in self._shards:
            shard.batches.send("drain")

    def guests(self) -> set[str]:
        """Returns the names of all senders of machines that have joined."""
        counts = self.counts().values()
        every = (sender for each in counts for sender in each["senders"].items())
        return {Sender.parse(key).name for key, rows in every if rows["guest"]}

    def fence(self, names: Collection[str]) -> None:
        """Makes every shard drop the chunks of these guests, and draw their rows no more."""
        self.fenced.update(names)
        for shard in self._shards:
            shard.note_fenced(self.fenced)
            shard.batches.send("fence", {"names": sorted(self.fenced)})

    def ends(self) -> dict[str, Sequence[int]]:
        """Returns name of each shard -> its incarnation, and the number that its next row gets."""
        known = [shard for shard in self._shards if shard.counts is not None]
        return {each.name: (each.incarnation, int(each.count("end", 0))) for each in known}

    def roll_back(self, ends: Mapping[str, Sequence[int]]) -> None:
        """Makes every shard remove the rows that came later; no batch is requested before.

        Args:
            ends: earlier result of :meth:`ends`; a shard that has begun anew since removes all
                that it has not restored.
        """
        self._ends = ends
        for shard in self._shards:
            shard.rolls_back = True
        self.ask_counts()

    @property
    def rolls_back(self) -> bool:
        """True until every shard has removed its late rows."""
        return any(shard.rolls_back for shard in self._shards)

    def _send_news(self, shard: Shard, counts: Mapping[str, Any], answered: int) -> None:
        """Sends a shard what it does not know yet: fenced guests, and where rows were to end."""
        self.fenced.update(counts["fenced"])
        shard.note_fenced(self.fenced)
        if self.fenced - set(counts["fenced"]):
            shard.batches.send("fence", {"names": sorted(self.fenced)})
        if shard.rolls_back and answered == shard.roll_back_id:
            shard.rolls_back = False
        elif shard.rolls_back and shard.roll_back_id is None:
            end = shard.end_of(self._ends.get(shard.name, (0, 0)))
            shard.roll_back_id = shard.batches.send("roll_back", {"end": end})

    @property
    def lacks_shard(self) -> bool:
        """True while the connection to a shard is lost."""
        return any(shard.lost for shard in self._shards)

    def counts(self) -> dict[str, Mapping[str, Any]]:
        """Returns shard with incarnation (``replay-0/17...``) -> its newest counts."""
        return {shard.key: shard.counts for shard in self._shards if shard.counts is not None}

    def pop_finished(self) -> list[dict[str, Any]]:
        """Returns summaries of the episodes that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def takes_priorities(self, sampled: Sampled) -> bool:
        """Returns True if the shard of a batch samples by priorities."""
        counts = self._shards[sampled.shard].counts
        return counts is not None and bool(counts["takes_priorities"])

    def update_priorities(self, sampled: Sampled, priorities: npt.NDArray[np.float32]) -> None:
        """Sends new priorities of a batch's rows to its shard; never blocks."""
        arrays = {"indices": sampled.columns["indices"], "priorities": priorities}
        message = Message("priorities", {"replay": sampled.incarnation}, arrays)
        shard = self._shards[sampled.shard]
        shard.unsent.append(message)
        shard.send_priorities()
