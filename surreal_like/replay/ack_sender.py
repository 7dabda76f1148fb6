"""Sends the acks of a replay shard, and decides when they are due."""

from __future__ import annotations

from collections.abc import Callable

from session.process.context import Context
from session.process.periodic import Every
from session.wire import Message
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_accounts import AckTracker

_ALIVE_SECONDS = 0.5
_NEWS_SECONDS = 0.01
# A sender with less than this share of its window in flight does not wait for its next ack.
_FILLED = 0.5
# A subscriber wakes its publisher each time it has read half of this many messages.
_HIGH_WATER_MARK = 64


class AckSender:
    """Publishes the acks of one replay shard.

    Args:
        context: context of this process.
        ledger: accounts of all chunks.

    Attributes:
        socket: publishes the acks.
        commit: makes rows and accounts survive the process; called before acks are sent.
    """

    def __init__(self, context: Context, ledger: AckTracker) -> None:
        self.commit: Callable[[], None] = lambda: None
        self.socket = context.wire.publisher(
            f"{context.name}.acks", high_water_mark=_HIGH_WATER_MARK
        )
        self._ledger = ledger
        self._now = context.clock.now
        self._news = False
        self._pressing = False
        self._news_at = 0.0
        self._news_only = False
        self._alive = True
        self._alive_due = Every(seconds=_ALIVE_SECONDS, clock=self._now)

    def on_chunk(self, chunk: Chunk) -> None:
        """Handles an admitted chunk: its ack is due soon, or at once if its sender may wait."""
        self._news = True
        self._pressing |= chunk.filled >= _FILLED

    def due(self, rest_seconds: float) -> bool:
        """Returns True periodically, and at once if a sender would soon wait for its ack.

        Args:
            rest_seconds: time until the next wake-up; 0 or less: it may be at any time.
        """
        # A new subscriber may have missed its ack.
        if self.socket.new_subscribers():
            self._news_only = False
        self._alive = self._alive_due()
        if self._alive or not self._news_only or self._pressing:
            return True
        # Acks that fall due before the next wake-up are sent now.
        return self._news and self._news_at <= self._now() + max(0.0, rest_seconds)

    @property
    def seconds_left(self) -> float:
        """Seconds until the acks of the newest chunks are due; 0 or less: none, or at once."""
        return self._news_at - self._now() if self._news else 0.0

    def send(self) -> None:
        """Sends acks to the senders with news; after a new subscription, to all senders.

        Each sender receives only its own ack, because with many agents reading the acks of others
        costs too much. A periodic empty message to all senders reports that this replay is alive,
        also a new incarnation that has no account of them.
        """
        self.commit()
        news, self._news_only = self._news_only, True
        self._news = self._pressing = False
        self._news_at = self._now() + _NEWS_SECONDS
        for ack in sorted(self._ledger.acks(news=news), key=lambda r: r.incarnation):
            message = Message("acks", {"senders": {ack.sender: list(ack[1:])}})
            self.socket.publish(message, to=ack.sender)
        if self._alive:
            self.socket.publish(Message("acks", {"senders": {}}))
