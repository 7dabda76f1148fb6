"""Receives experience for a replay shard, and keeps its accounts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from session.errors import DecodeError, describe
from session.process.clock import boot_number
from session.process.context import Context
from session.process.periodic import Rate, Stopwatch
from session.wire import Message
from session.wire.one_way_sockets import Socket
from surreal_like.data.columns import recorded_columns
from surreal_like.data.policy_names import PolicyId
from surreal_like.data.sender import Sender
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_accounts import steps_per_row
from surreal_like.experience.schemas import EXPERIENCE
from surreal_like.replay.ack_sender import AckSender
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.chunk_validator import WRONG_COLUMNS, ChunkValidator
from surreal_like.replay.replay import Replay
from surreal_like.replay.reward_scale import make_return_counter

_GATEWAYS = "gateway-"
# The first chunk after a sleep costs several times as much as one that follows another.
_TOGETHER = 4
# Chunks that arrive faster gather without a delay.
_LEAST_SECONDS = 0.002
_MOST_SECONDS = 0.03
# Newest chunks over which the mean gap is taken.
_NEWEST = 8


class WakeupCoalescer:
    """Delays the next wake-up after chunks were read, so that several chunks gather.

    The delay is the time in which 4 chunks arrive, by the mean gap between the newest ones: at most
    30 ms, and none below 2 ms. A request for rows wakes replay at once, and all chunks are read
    before it is answered.

    Args:
        now: seconds, of a clock that only rises.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._gap = 0.0
        self._at = now()
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds left of the delay, 0 or less once it is over."""
        return self._until - self._now()

    def begin(self, taken: int) -> None:
        """Starts a delay after ``taken`` chunks, at least 1, were read."""
        now = self._now()
        gap = min((now - self._at) / taken, _MOST_SECONDS / _TOGETHER)
        self._gap += (gap - self._gap) * min(1.0, taken / _NEWEST)
        seconds = _TOGETHER * self._gap
        self._at, self._until = now, now + (seconds if seconds >= _LEAST_SECONDS else 0.0)


FENCED, WRONG_POLICY = "fenced", "wrong policy"
_FENCED_DETAIL = "its rows were in updates that were not finite"
_KEEP_FINISHED = 1000
# There is one learner; of more peers the oldest is forgotten.
_ASKING_PEERS = 16


class ExperienceReceiver:
    """Reads experience while the replay accepts it, and keeps account of every row.

    Args:
        context: context of this process.
        replay: stores the experience.

    Attributes:
        ledger: accounts of all chunks.
        acks: sends the acks for them.
        inserts: rows inserted.
        env_steps: environment steps of the chunks that this process has taken.
        agent_steps: steps of the agents whose rows it has inserted.
        MOST: most chunks that are read in one tick.
        waiting: measures the time for which experience was not read.
        draining: True once every chunk is accepted and the limiter has no effect.
        returns: counts the returns of inserted rows; None unless rewards are normalized.
        recorder: writes down the chunks that were inserted; None: nothing does.
    """

    MOST = 8

    def __init__(self, context: Context, replay: Replay) -> None:
        wire, clock, name = context.wire, context.clock, context.name
        quiet_seconds = context.config.session_config.heartbeat.timeout
        self.ledger = AckTracker(clock.now, quiet_seconds, context.incarnation)
        self.ledger.in_order = {each.name for each in context.topology if each.sends}
        self.inserts = Rate(clock=clock.now)
        self.env_steps = self.agent_steps = 0
        self.waiting = Stopwatch(clock.now)
        self._rest = WakeupCoalescer(clock.now)
        self.draining = False
        self._context = context
        self._policy = PolicyId.of_shard(name).name
        self._replay = replay
        self._steps_per_row = steps_per_row(context.config)
        self.returns = make_return_counter(replay.learner_config.algo)
        self.recorder: Any = None
        self._validator = _make_validator(context, replay)
        self._validator.large = lambda sender, detail: context.event(
            "large_values", f"{sender}: {detail}: losses may become infinite", sender=sender
        )
        session = context.config.session_config
        # Beside own agents clients decide about no goal, unless a key says so.
        decide = session.get("gateway", {}).get("clients_decide", False)
        self._clients_decide = decide or not session.agent.num
        self._experience = wire.pull(f"{name}.experience", EXPERIENCE)
        self.acks = AckSender(context, self.ledger)
        self._finished: dict[bytes, deque[dict[str, Any]]] = {}
        self._newest_finished: deque[dict[str, Any]] = deque(maxlen=_KEEP_FINISHED)
        self._stamps: dict[str, float] = {}
        self._boot = boot_number()

    def tick(self) -> int:
        """Reads chunks while the replay accepts them, at most :attr:`MOST`; returns how many."""
        taken = 0
        while taken < self.MOST and self._may_insert():
            message = self._experience.receive()
            if message is None:
                break
            taken += 1
            self._take(message)
        if taken:
            self._rest.begin(taken)
        return taken

    def _may_insert(self) -> bool:
        """Returns True if experience may be read now; measures the time for which it may not."""
        allowed = self.draining or self._replay.can_insert()
        self.waiting.hold(not allowed)
        return allowed

    def _take(self, message: Message) -> None:
        sender = Sender.of(message, self._policy)
        try:
            self.ledger.check(message.sender, message.fields["seq"])
            if message.kind == "goodbye":
                key = (sender.name, sender.incarnation)
                self.ledger.goodbye(key, message.fields, guest=sender.joined)
                self.acks.send()
            else:
                self._take_chunk(sender, message)
        except DecodeError as error:
            # Not acked: no account can be kept of it, or only once earlier chunks were received.
            self._experience.reject(message, str(error))

    def _take_chunk(self, sender: Sender, message: Message) -> None:
        try:
            chunk, readable = Chunk.from_message(message), True
        except DecodeError as error:
            chunk, readable = Chunk.unreadable(message), False
            self._experience.reject(message, str(error))
        if sender.joined:
            self._validator.distrust(sender.name)
        if sender.joined or (not self._clients_decide and sender.name.startswith(_GATEWAYS)):
            # No decision of the run goes by what a joined machine or a client says of its episodes.
            marks = {"metrics": {}, "guest": True}
            chunk.finished = [{**each, **marks} for each in chunk.finished]
        inserted = self._insert(chunk, sender, readable=readable)
        if inserted and self.recorder is not None:
            self.recorder.accept(chunk, message.frames)

    def _insert(self, chunk: Chunk, sender: Sender, *, readable: bool) -> bool:
        """Inserts a chunk, and returns True; every chunk that is counted here is acked.

        Args:
            chunk: a chunk as it was received.
            sender: the sender of the chunk.
            readable: False if only its row count could be read.
        """
        steps = self.ledger.count_new_steps(chunk)
        chunk.joined = sender.joined
        if not self.ledger.admit(chunk):
            return False
        account = self.ledger.account(chunk.sender, chunk.incarnation)
        chunk.account = account.place
        self.acks.on_chunk(chunk)
        if not readable:
            self.ledger.count_dropped(chunk, WRONG_COLUMNS)
            return False
        if sender.published != self._policy:
            detail = f"rows of policy {sender.published}, expected {self._policy}"
            self._drop(chunk, WRONG_POLICY, detail)
            return False
        if sender.joined and chunk.sender in self.ledger.fenced:
            # Steps that nothing is learned from must not use up the budget of the run.
            chunk.env_steps, chunk.episodes = account.env_steps, account.episodes
            self._drop(chunk, FENCED, _FENCED_DETAIL)
            return False
        chunk.steps = min(steps, chunk.size * self._steps_per_row) if sender.joined else steps
        self.env_steps += chunk.steps
        self.ledger.env_steps += chunk.steps
        if (refusal := self._replay.refusal(chunk)) is not None:
            self.ledger.count_dropped(chunk, refusal)
            return False
        if (wrong := self._validator.refusal(chunk)) is not None:
            self._drop(chunk, *wrong)
            return False
        try:
            self._replay.insert_chunk(chunk)
        except DataError as error:
            self._drop(chunk, "does not fit", describe(error))
            return False
        self.ledger.count_inserted(chunk)
        if self.returns is not None:
            self.returns.add(chunk)
        self.inserts.add(chunk.size)
        self.agent_steps += chunk.count_steps()
        for finished in (self._newest_finished, *self._finished.values()):
            finished.extend(chunk.finished)
        if chunk.stamps:
            self._stamps = {**chunk.stamps, "inserted": self._context.clock.now()}
            if self._stamps.get("boot") != self._boot:
                # Of another machine, whose clock has another beginning.
                self._stamps.pop("sent", None)
                self._stamps["boot"] = self._boot
        return True

    def _drop(self, chunk: Chunk, reason: str, detail: str) -> None:
        """Counts the rows as dropped; reports each reason once for each sender."""
        self.ledger.count_dropped(chunk, reason)
        endpoint = self._experience.endpoint
        self._context.wire.reject(endpoint, chunk.sender, detail, kind=reason)

    def close_senders(self) -> None:
        """Closes senders that are gone; call it after the learner was given their numbers."""
        for name, incarnation in self.ledger.close():
            if self.returns is not None:
                self.returns.forget(name, incarnation)

    def on_version(self, version: int) -> None:
        """Notes the newest version that the learner has published."""
        self._validator.newest_version = max(self._validator.newest_version, version)

    def fence(self, names: Collection[str]) -> None:
        """Drops the chunks of guests from now on, and draws their rows no more."""
        self._replay.fence(self.ledger.fence(names))
        self.acks.commit()

    def roll_back(self, end: int) -> int:
        """Removes the rows that have come late; returns how many, see :meth:`Replay.roll_back`."""
        gone = self._replay.roll_back(end)
        self.ledger.rolled_back += gone
        if self.recorder is not None:
            self.recorder.cut()
        self._validator.suspect_all()
        # Before other rows lie where these were.
        self.acks.commit()
        return gone

    def drain(self) -> None:
        """Accepts every chunk from now on; the limiter has no effect."""
        self.draining = True

    @property
    def empty(self) -> bool:
        """True while no message waits in the socket."""
        return not self._experience.readable()

    def wait_on(self, *, awaited: bool) -> list[Socket]:
        """Returns the sockets to wait on: experience while it is accepted, and acks.

        Args:
            awaited: a request for rows, or the shutdown, waits for experience.
        """
        resting = self._rest.left > 0.0 and not awaited
        closed = self.waiting.held or resting
        return [self.acks.socket] if closed else [self._experience, self.acks.socket]

    def send_due_acks(self) -> None:
        """Sends acks if they fall due before the next wake-up."""
        if self.acks.due(self._rest.left):
            self.acks.send()

    def rest_seconds(self, otherwise: float) -> float:
        """Seconds that replay may sleep: until enough chunks gathered, then until acks are due."""
        left = self._rest.left
        if left <= 0.0:
            left = self.acks.seconds_left
        return left if left > 0.0 else otherwise

    def pop_finished(self, peer: bytes) -> list[dict[str, Any]]:
        """Returns summaries of the episodes that ended since the last request of this peer."""
        # The first request of a peer must not miss the episodes that ended before.
        finished = self._finished.pop(peer, self._newest_finished)
        if len(self._finished) >= _ASKING_PEERS:
            del self._finished[next(iter(self._finished))]
        self._finished[peer] = deque(maxlen=_KEEP_FINISHED)
        return list(finished)

    def pop_stamps(self) -> dict[str, float]:
        """The stamps of one traced chunk, once."""
        stamps, self._stamps = self._stamps, {}
        return stamps


def _make_validator(context: Context, replay: Replay) -> ChunkValidator:
    config, columns = context.config, recorded_columns(replay.learner_config)
    if replay.gives() == "gradients":
        # A gradient has no columns of the environment; its replay checks what it has.
        return ChunkValidator({"obs_spec": {}, "action_spec": {}}, columns, most=(1, 1))
    # Of several agents unrolls come in chunks of any number of streams.
    streams = 0 if replay.overlap else config.env_config.num_envs
    most = config.session_config.sender.flush_iteration, streams
    return ChunkValidator(config.env_config, columns, most=most)
