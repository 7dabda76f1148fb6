"""What comes in at a replay shard: experience, its accounts, and the acks for it."""

from __future__ import annotations

from collections import deque
from typing import Any

from session.context import Context
from session.errors import DecodeError, describe
from session.periodic import Every, Rate
from session.wire import Message
from session.wire.sockets import Socket
from surreal_like.data.chunk import Chunk
from surreal_like.errors import DataError
from surreal_like.replay.acks import AckTracker
from surreal_like.replay.base import Replay
from surreal_like.replay.chunk_validator import WRONG_COLUMNS, ChunkValidator
from surreal_like.replay.coalescer import WakeupCoalescer
from surreal_like.replay.schemas import EXPERIENCE
from surreal_like.replay.stopwatch import Stopwatch

_ALIVE_SECONDS = 0.5
_NEWS_SECONDS = 0.01
# A sender with so much of its window left never waits for its next ack.
_FILLED = 0.5
_KEEP_FINISHED = 1000
# The learner is one; the oldest of more is forgotten.
_ASKING_PEERS = 16
# A subscriber wakes its publisher whenever it has read half of so many.
_ACKS_HIGH_WATER_MARK = 64


class ExperienceReceiver:
    """Reads experience while the replay takes it, and keeps account of every row.

    Args:
        context: of this process.
        replay: what keeps the experience.

    Attributes:
        ledger: what became of each chunk.
        inserts: rows taken in.
        MOST: chunks that are taken in one tick.
        waiting: for how long experience was not read.
        draining: every chunk is taken, whatever the limiter says.
    """

    MOST = 8

    def __init__(self, context: Context, replay: Replay) -> None:
        wire, clock, name = context.wire, context.clock, context.name
        high_water_mark = context.config.session_config.replay.high_water_mark
        self.ledger = AckTracker()
        self.inserts = Rate(clock=clock.now)
        self.waiting = Stopwatch(clock.now)
        self._rest = WakeupCoalescer(clock.now)
        self.draining = False
        self._context = context
        self._replay = replay
        self._validator = ChunkValidator(context.config.env_config)
        self._experience = wire.pull(
            f"{name}.experience", EXPERIENCE, high_water_mark=high_water_mark
        )
        self._acks = wire.publisher(f"{name}.acks", high_water_mark=_ACKS_HIGH_WATER_MARK)
        self._finished: dict[bytes, deque[dict[str, Any]]] = {}
        self._newest_finished: deque[dict[str, Any]] = deque(maxlen=_KEEP_FINISHED)
        self._stamps: dict[str, float] = {}
        self._news = False
        self._pressing = False
        self._news_at = 0.0
        self._news_only = False
        self._alive = True
        self._alive_due = Every(seconds=_ALIVE_SECONDS, clock=clock.now)

    def tick(self) -> int:
        """Takes in chunks while the replay takes them; how many, :attr:`MOST` at a time."""
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
        """Whether experience is read now; counts the time for which it was not."""
        allowed = self.draining or self._replay.can_insert()
        self.waiting.hold(not allowed)
        return allowed

    def _take(self, message: Message) -> None:
        try:
            self.ledger.check(message.sender, message.fields["seq"])
            if message.kind == "goodbye":
                self._on_goodbye(message)
            else:
                self._take_chunk(message)
        except DecodeError as error:
            # It is not acknowledged: no account can be kept of it, or not before others have come.
            self._experience.reject(message, str(error))

    def _take_chunk(self, message: Message) -> None:
        try:
            chunk, readable = Chunk.from_message(message), True
        except DecodeError as error:
            chunk, readable = Chunk.unreadable(message), False
            self._experience.reject(message, str(error))
        if message.grant.guest:
            self._validator.suspect(chunk.sender)
            # A metric may be the goal of the run, which no guest is to reach for it.
            chunk.finished = [{**each, "metrics": {}} for each in chunk.finished]
        self._insert(chunk, readable=readable)

    def _insert(self, chunk: Chunk, *, readable: bool) -> None:
        """Takes in a chunk; every chunk that is counted here is acknowledged, inserted or not.

        Args:
            chunk: what has come.
            readable: False if it only counts its rows.
        """
        if not self.ledger.admit(chunk, acked=chunk.acked, acked_rows=chunk.acked_rows):
            return
        self._news = True
        self._pressing |= chunk.filled >= _FILLED
        if not readable:
            self.ledger.dropped(chunk, WRONG_COLUMNS)
            return
        if (refusal := self._replay.refusal(chunk)) is not None:
            self.ledger.dropped(chunk, refusal)
            return
        if (wrong := self._validator.refusal(chunk)) is not None:
            self._drop(chunk, *wrong)
            return
        try:
            self._replay.insert_chunk(chunk)
        except DataError as error:
            self._drop(chunk, "does not fit", describe(error))
            return
        self.ledger.inserted(chunk)
        self.inserts.add(chunk.size)
        for finished in (self._newest_finished, *self._finished.values()):
            finished.extend(chunk.finished)
        if chunk.stamps:
            self._stamps = {**chunk.stamps, "inserted": self._context.clock.now()}

    def _drop(self, chunk: Chunk, reason: str, detail: str) -> None:
        """Counts rows that are not taken; reports each reason once for each sender."""
        self.ledger.dropped(chunk, reason)
        endpoint = self._experience.endpoint
        self._context.wire.reject(endpoint, chunk.sender, detail, kind=reason)

    def _on_goodbye(self, message: Message) -> None:
        who, fields = message.sender, message.fields
        self.ledger.goodbye(
            who.name,
            who.incarnation,
            fields["rows"],
            fields["seq"],
            acked=fields.get("acked", 0),
            acked_rows=fields.get("acked_rows", 0),
        )
        self.send_acks()

    def acks_due(self) -> bool:
        """Now and then, and at once for a sender that would soon wait for its ack."""
        # Who comes may have missed its own.
        if self._acks.new_subscribers():
            self._news_only = False
        self._alive = self._alive_due()
        if self._alive or not self._news_only or self._pressing:
            return True
        # Those that would be due before it wakes again leave now.
        return self._news and self._news_at <= self._context.clock.now() + max(0.0, self._rest.left)

    def send_acks(self) -> None:
        """Tells senders what has been handled of their rows: those with news, now and then each.

        Each hears its own, or many agents would spend their time on what others are told. That
        this replay lives is for all, be it a new one that does not know them.
        """
        news, self._news_only = self._news_only, True
        self._news = self._pressing = False
        self._news_at = self._context.clock.now() + _NEWS_SECONDS
        for ack in sorted(self.ledger.acks(news=news), key=lambda r: r.incarnation):
            numbers = [
                ack.incarnation,
                ack.handled,
                ack.inserted,
                ack.dropped,
            ]
            message = Message("acks", {"senders": {ack.sender: numbers}})
            self._acks.publish(message, to=ack.sender)
        if self._alive:
            self._acks.publish(Message("acks", {"senders": {}}))

    def drain(self) -> None:
        """From now on every chunk is taken, whatever the limiter says."""
        self.draining = True
        self._replay.drain()

    @property
    def empty(self) -> bool:
        """True while nothing lies in the socket."""
        return not self._experience.readable()

    def wait_on(self, *, awaited: bool) -> list[Socket]:
        """Its sockets: of experience while that is taken, and of who comes for acks.

        Args:
            awaited: whoever wants rows has to wait for experience.
        """
        resting = self._rest.left > 0.0 and not awaited
        closed = self.waiting.held or resting
        return [self._acks] if closed else [self._experience, self._acks]

    def rest_seconds(self, otherwise: float) -> float:
        """How long replay may sleep: until enough has gathered, then until acks are due."""
        left = self._rest.left
        if left <= 0.0 and self._news:
            left = self._news_at - self._context.clock.now()
        return left if left > 0.0 else otherwise

    def pop_finished(self, peer: bytes) -> list[dict[str, Any]]:
        """Summaries of the episodes that ended since this peer asked last."""
        # Whoever asks for the first time must not miss the episodes that ended before.
        finished = self._finished.pop(peer, self._newest_finished)
        if len(self._finished) >= _ASKING_PEERS:
            del self._finished[next(iter(self._finished))]
        self._finished[peer] = deque(maxlen=_KEEP_FINISHED)
        return list(finished)

    def pop_stamps(self) -> dict[str, float]:
        """The stamps of one traced chunk, once."""
        stamps, self._stamps = self._stamps, {}
        return stamps
