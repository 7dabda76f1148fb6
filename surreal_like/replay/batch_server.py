"""The replay server: answers requests for batches; the receiver reads experience."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from threading import Thread
from typing import Any

from session.addons.hooks import RECORDER
from session.config import Config
from session.errors import SurrealError, describe
from session.process.context import Context
from session.process.periodic import Every, Rate, Stopwatch
from session.process.service import IDLE_SECONDS, QuietPeriod, Service
from session.wire.endpoint import IPC
from session.wire.one_way_sockets import Socket
from session.wire.requests import Request
from surreal_like.experience.schemas import PRIORITIES, REQUESTS
from surreal_like.replay.receiver import ExperienceReceiver
from surreal_like.replay.recovery import ShardRecovery
from surreal_like.replay.replay import Replay
from surreal_like.replay.shared_memory import Slabs

_PARKED_REQUESTS = 64
# Most requests, and messages of priorities, that are read in one tick.
_AT_ONCE = 64
# Approximate size of the answers that are sent together.
_TOGETHER_BYTES = 1 << 20
_COUNTS_SECONDS = 0.1
# Mistakes in an author's replay show in the first chunks and batches.
_PROVEN = 100


class ReplayService(Service):
    """Serves one shard.

    Experience is read only while the replay accepts it, and requests are answered only while it
    has rows to give: so back-pressure reaches agents through their sockets, and the learner waits.

    Args:
        context: context of this process.
        replay: stores the experience.

    Attributes:
        done: True when the run is over, or after SIGTERM when no more chunks arrive.
    """

    done = False

    def __init__(self, context: Context, replay: Replay) -> None:
        wire, clock, name = context.wire, context.clock, context.name
        session = context.config.session_config
        self._context = context
        self._replay = replay
        replay.attach(context)
        self._intake = ExperienceReceiver(context, replay)
        self._recovery = ShardRecovery(context, replay, self._intake.ledger)
        # Before the restore, which goes on with the random numbers of the snapshot.
        replay.reseed(context.seed)
        self._recovery.restore()
        goes_on = self._recovery.goes_on
        recorders = (make(context, replay, goes_on=goes_on) for make in RECORDER)
        self._intake.recorder = next(filter(None, recorders), None)
        self._intake.acks.commit = self._commit
        self._batches = wire.router(f"{name}.batches", REQUESTS)
        self._priorities = wire.pull(f"{name}.priorities", PRIORITIES)
        self._most_rows = _most_rows(context.config)
        self._parked: deque[tuple[Request, float]] = deque()
        # Name of a learner -> its newest incarnation, its newest request, and the connection of
        # that request.
        self._learners: dict[str, tuple[int, int, bytes]] = {}
        # Name of a learner -> its incarnation that has asked for a roll-back.
        self._rolled_back_for: dict[str, int] = {}
        self._slabs = Slabs()
        # A peer on another transport is on another machine, or may be any process.
        self._shares = wire.addresses[self._batches.endpoint].bind.startswith(IPC)
        self._ignored_priorities = 0
        self._leaving = False
        self._waiting = Stopwatch(clock.now)
        self._evict_due = Every(seconds=session.replay.evict_interval, clock=clock.now)
        self._snapshot_due = Every(seconds=session.replay.snapshot_seconds, clock=clock.now)
        self._report_due = Every(seconds=session.tensorplex.update_schedule, clock=clock.now)
        self._counts_due = Every(seconds=_COUNTS_SECONDS, clock=clock.now)
        self._ending = QuietPeriod(context)
        self._samples = Rate(clock=clock.now)
        self._chunks_taken = self._requests_answered = 0

    def tick(self) -> bool:
        """Inserts chunks, answers requests, and does periodic work."""
        requests, priorities = self._take_requests(), self._take_priorities()
        taken = self._intake.tick()
        self._chunks_taken += taken
        answered = self._answer_parked()
        self._intake.send_due_acks()
        if self._evict_due():
            self._replay.evict()
        if self._report_due():
            self._report()
        if self._snapshot_due():
            self._recovery.save(self._account(self._replay.statistics()))
        self.done |= self._ending.done or (self._leaving and self._intake.empty)
        if requests or priorities or taken or answered:
            self._ending.on_message()
        # Answers may have made room for experience.
        more = answered and (bool(self._parked) or self._intake.waiting.held)
        return more or taken == self._intake.MOST or _AT_ONCE in (requests, priorities)

    def _commit(self) -> None:
        """Makes what will be acked survive this process."""
        if self._intake.recorder is not None:
            self._intake.recorder.flush()
        self._recovery.commit()

    # -- batches ---------------------------------------------------------------------------------

    def _take_requests(self) -> int:
        """Reads at most 64 requests, so that a flood of them cannot block; returns how many."""
        for taken in range(_AT_ONCE):
            request = self._batches.receive()
            if request is None:
                return taken
            kind = request.message.kind
            if kind == "sample":
                self._park(request)
            else:
                if kind == "drain":
                    self._intake.drain()
                elif kind == "fence":
                    self._intake.fence(request.message.fields["names"])
                elif kind == "roll_back":
                    self._roll_back(request)
                self._batches.reply(request, "counts", {"counts": self._counts(request)})
                self._intake.close_senders()
        return _AT_ONCE

    def _roll_back(self, request: Request) -> None:
        """Removes late rows, once for each learner that asks: it repeats until it has an answer."""
        sender, end = request.message.sender, request.message.fields["end"]
        if sender.incarnation > self._rolled_back_for.get(sender.name, 0):
            self._rolled_back_for[sender.name] = sender.incarnation
            gone = self._intake.roll_back(end)
            self._context.event("rolled_back", f"{gone:,} rows that came after the checkpoint")

    def _park(self, request: Request) -> None:
        fields = request.message.fields
        if not self._is_newest(request):
            self._batches.refuse(request, "a newer learner has taken over")
            return
        rows = fields["batch_size"] * fields["batches"]
        self._on_learner(fields)
        if rows > self._most_rows:
            reason = f"asked for {rows} rows, the limit is {self._most_rows}"
            self._batches.refuse(request, reason)
        elif len(self._parked) >= _PARKED_REQUESTS:
            self._batches.refuse(request, f"{_PARKED_REQUESTS} requests are waiting already")
        else:
            self._parked.append((request, self._context.clock.now()))

    def _is_newest(self, request: Request) -> bool:
        """Returns False for a request of a replaced learner, or of a connection that it has lost.

        A newer learner or connection discards the requests of the one before: batches that are
        sent there are lost, and may be those that synchronous agents wait for.
        """
        sender, number = request.message.sender, request.message.fields["id"]
        incarnation, newest, peer = self._learners.get(sender.name, (0, 0, request.peer))
        if (sender.incarnation, number) < (incarnation, newest):
            return False
        if incarnation and (sender.incarnation, request.peer) != (incarnation, peer):
            kept = [one for one in self._parked if one[0].message.sender.name != sender.name]
            gone = len(self._parked) - len(kept)
            self._parked = deque(kept)
            event = "replaced" if sender.incarnation > incarnation else "reconnected"
            self._context.event(f"learner_{event}", f"{gone} requests of before discarded")
        self._learners[sender.name] = sender.incarnation, number, request.peer
        return True

    def _on_learner(self, fields: Mapping[str, Any]) -> None:
        progress = {
            name: fields.get(name, 0) for name in ("version", "env_steps", "iteration", "since")
        }
        self._intake.on_version(progress["version"])
        self._replay.on_learner(least_mass=fields.get("least", math.inf), **progress)

    def _answer_parked(self) -> bool:
        """Sends several small answers at once: each message alone costs a wake-up."""
        answered, size_bytes = False, 0
        while size_bytes < _TOGETHER_BYTES and (answer_bytes := self._answer_first()) is not None:
            answered = True
            size_bytes += answer_bytes
        self._batches.send_held()
        return answered

    def _answer_first(self) -> int | None:
        """Answers the oldest request; returns the answer's bytes, None if it has to wait."""
        if not self._parked:
            return None
        request, since = self._parked[0]
        batch_size = request.message.fields["batch_size"]
        batches = self._replay.batches_at_once(request.message.fields["batches"])
        held = not self._replay.can_sample(batch_size * batches)
        self._waiting.hold(held)
        if held:
            return None
        self._parked.popleft()
        now = self._context.clock.now()
        try:
            columns, placed = self._sample(batch_size * batches, request)
        except SurrealError as error:
            self._batches.refuse(request, describe(error))
            return 0
        rows = self._replay.rows_in(batch_size * batches)
        self._samples.add(rows)
        fields = {
            "batches": batches,
            "batch_size": batch_size,
            "counts": self._counts(request) if self._counts_due() else None,
            "stamps": self._way(since, now),
            "env_steps": [
                self._intake.ledger.env_steps - self._intake.env_steps,
                self._replay.steps_of_batch(self._intake.env_steps),
            ],
            **placed,
        }
        if self._replay.last is not None:
            fields["last"] = self._replay.last
        if self._intake.recorder is not None:
            fields["place"] = list(self._intake.recorder.place)
            fields["drawn"] = list(self._replay.drawn)
        if self._intake.returns is not None:
            fields["returns"] = list(self._intake.returns.moments)
        # A lost reply matters only where each row is given once; others may be held and grouped.
        later = not self._replay.consumes
        answer_bytes = self._batches.reply(request, "batch", fields, columns, later=later)
        self._requests_answered += 1
        if not answer_bytes and not later:
            self._replay.undo_sample()
            self._samples.add(-rows)
        return answer_bytes

    def _sample(self, rows: int, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the columns to send, of consecutive batches, and the place of the other columns.

        Rows are drawn independently, so one draw serves all batches.
        """
        part = self._slabs.part(request.message.fields) if self._shares else None
        if part is None:
            return self._replay.sample_columns(rows), {}
        self._replay.empty = part.empty
        try:
            left, placed = part.place(self._replay.sample_columns(rows))
        finally:
            self._replay.empty = None
        return left, {"placed": placed}

    def _way(self, asked: float, sampled: float) -> dict[str, float]:
        """Returns the time stamps of one traced chunk, once."""
        stamps = self._intake.pop_stamps()
        if not stamps:
            return {}
        return {**stamps, "asked": asked, "sampled": sampled, "answered": self._context.clock.now()}

    def _take_priorities(self) -> int:
        """Reads at most 64 messages of priorities; returns how many."""
        for taken in range(_AT_ONCE):
            message = self._priorities.receive()
            if message is None:
                return taken
            indices, priorities = message.arrays["indices"], message.arrays["priorities"]
            if message.fields["replay"] != self._context.incarnation:
                self._ignored_priorities += len(indices)
                continue
            if len(indices) != len(priorities):
                self._priorities.reject(message, f"{len(priorities)} for {len(indices)} rows")
                continue
            try:
                self._replay.update_priorities(indices, priorities)
            except (SurrealError, ValueError, IndexError) as error:
                self._priorities.reject(message, describe(error))
        return _AT_ONCE

    # -- counts and the end ----------------------------------------------------------------------

    def _counts(self, request: Request) -> dict[str, Any]:
        statistics = self._replay.statistics()
        totals = self._intake.ledger.totals()
        return {
            **self._account(statistics),
            "before": self._recovery.before,
            "inserted": totals["inserted"],
            "end": int(statistics.get("inserted", 0)),
            "fenced": sorted(self._intake.ledger.fenced),
            "dropped": dict(self._intake.ledger.drops),
            "duplicates": totals["duplicates"],
            "sampleable": int(statistics.get("sampleable", 0)),
            "mass": self._replay.mass,
            "least": statistics.get("priority_least", math.inf),
            "bytes": int(statistics.get("size_bytes", 0)),
            "evicted": int(statistics.get("evicted", 0)),
            "takes_priorities": self._replay.takes_priorities,
            "priorities_ignored": self._priorities_ignored(statistics),
            "waiting_insert_seconds": self._intake.waiting.seconds,
            "waiting_sample_seconds": self._waiting.seconds,
            "draining": self._intake.draining,
            "status": self._waits_for(statistics),
            "finished": self._intake.pop_finished(request.peer),
        }

    def _account(self, statistics: Mapping[str, float]) -> dict[str, Any]:
        """Returns what the accounts of the run take of this shard."""
        return {
            "agent_steps": self._intake.agent_steps,
            "added": int(self._intake.inserts.total) + self._recovery.inserted,
            "restored": self._recovery.rows,
            "goes_on": self._recovery.goes_on,
            "rolled_back": self._intake.ledger.rolled_back,
            "sampled": int(self._samples.total),
            "replayed": int(statistics.get("replayed", 0)),
            "size": int(statistics.get("size", 0)),
            "unlearned": self._replay.count_unlearned(),
            "ledger": self._intake.ledger.began,
            "senders": self._intake.ledger.senders(),
        }

    def _priorities_ignored(self, statistics: Mapping[str, float]) -> int:
        """Priorities for rows of an earlier incarnation, and for rows that have been evicted."""
        return self._ignored_priorities + int(statistics.get("priorities_ignored", 0))

    def _report(self) -> None:
        if not self._learners:
            # The axis is that of the run: a shard that has just started does not know it yet.
            return
        totals = self._intake.ledger.totals()
        statistics = self._replay.statistics()
        numbers = {
            **statistics,
            "inserted": totals["inserted"],
            "sampled": self._samples.total,
            "dropped": totals["dropped"],
            "duplicates": totals["duplicates"],
            "priorities_ignored": self._priorities_ignored(statistics),
            **self._rates(),
            "requests_waiting": float(len(self._parked)),
        }
        named = {f".core/{name}": value for name, value in numbers.items()}
        self._context.tensorplex.add_scalars(named, self._replay.run_steps)

    def drain(self) -> None:
        """Handles SIGTERM: accepts every chunk, and ends once no more arrive."""
        self._intake.drain()
        self._leaving = True

    @property
    def proven(self) -> bool:
        """True once more than 100 chunks were read and more than 100 requests answered."""
        return min(self._chunks_taken, self._requests_answered) > _PROVEN

    def wait_on(self) -> list[Socket]:
        """Sockets to wait on: requests, priorities, and experience while it is accepted."""
        awaited = bool(self._parked) or self._leaving
        return [self._batches, self._priorities, *self._intake.wait_on(awaited=awaited)]

    def rest_seconds(self) -> float:
        """Seconds to sleep: until enough experience has gathered, or acks are due."""
        return self._intake.rest_seconds(IDLE_SECONDS)

    def status(self) -> dict[str, float]:
        """Rates and queue lengths for the heartbeat, and the rows that a request waits for."""
        return {**self._rates(), **self._waits_for(self._replay.statistics())}

    def _waits_for(self, statistics: Mapping[str, float]) -> dict[str, float]:
        return {
            "requests_waiting": float(len(self._parked)),
            "needs_rows": float(self._count_needed_rows()),
            "has_rows": float(statistics.get("sampleable", 0.0)),
            "takes_no_rows": float(self._intake.waiting.held),
        }

    def _rates(self) -> dict[str, float]:
        return {
            "inserts_per_second": self._intake.inserts.per_second(),
            "samples_per_second": self._samples.per_second(),
            "waiting_insert_seconds": self._intake.waiting.seconds,
            "waiting_sample_seconds": self._waiting.seconds,
        }

    def _count_needed_rows(self) -> int:
        """Rows that the oldest waiting request needs; 0 if none waits, or unknown."""
        if not self._parked or not self._waiting.held:
            return 0
        fields = self._parked[0][0].message.fields
        batches = self._replay.batches_at_once(fields["batches"])
        return self._replay.needed_rows(fields["batch_size"] * batches)

    def close(self) -> None:
        """Sends last acks, reports metrics, and saves a snapshot if it is done."""
        self._intake.acks.send()
        self._report()
        if self._intake.recorder is not None:
            self._intake.recorder.close()
        if self.done:
            self._recovery.save(self._account(self._replay.statistics()))


def _most_rows(config: Config) -> int:
    """Rows of the largest allowed request: the learner's own, or the capacity if larger."""
    replay, learner = config.learner_config.replay, config.session_config.learner
    return max(int(replay.capacity), int(replay.batch_size * learner.batches_per_request))


def serve_in_background(replay: Replay) -> Thread:
    """Serves a replay of a script from a thread; see :meth:`Replay.start_threads`."""
    from session.process.script import run_in_background

    return run_in_background(
        replay.session_config, "replay", 0, lambda context: ReplayService(context, replay)
    )
