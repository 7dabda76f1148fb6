"""Sockets for one-way messages: PUSH to PULL, XPUB to SUB."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import zmq

from session.wire.codec import Message
from session.wire.connection_limits import Bucket
from session.wire.schema import Kinds
from session.wire.socket_base import Socket as Socket
from session.wire.socket_base import descriptor_of

if TYPE_CHECKING:
    from session.wire.socket_state import Shared


_TOPIC = b"p"
# Maximum invalid messages, or subscriptions, read per call before it returns.
_READ_AT_ONCE = 256
# A component subscribes twice when it connects.
_SUBSCRIPTIONS, _SUBSCRIPTIONS_PER_SECOND = 64.0, 2.0


def _topic_of(name: str) -> bytes:
    """Topic of one subscriber; ends with a slash because topics are matched as prefixes."""
    return b"t" + name.encode() + b"/"


class PushSocket(Socket):
    """Sends messages one way; the caller keeps a message that cannot be sent now."""

    pattern = zmq.PUSH
    binds = False

    def send(self, message: Message) -> bool:
        """Sends without waiting; False if there is no peer or it is full.

        Raises:
            OversizeError: the message is larger than the run allows.
        """
        return self._may_send() and self._send_frames(self._encode(message))


class PullSocket(Socket):
    """Receives messages of all PUSH peers."""

    pattern = zmq.PULL
    binds = True
    sends = False

    def receive(self) -> Message | None:
        """Returns the next valid message, or None if there is none now.

        libzmq reads its connections in turn, so a flooding peer delays each of the others by one
        message only. The caller bounds the number of messages it receives per tick.
        """
        for _ in range(_READ_AT_ONCE):
            frames = self._receive()
            if frames is None:
                return None
            if (message := self._decode(frames)) is not None:
                return message
        return None


class PublisherSocket(Socket):
    """Publishes to all subscribers; a slow one misses messages."""

    pattern = zmq.XPUB
    binds = True

    def __init__(
        self, wire: Shared, endpoint: str, high_water_mark: int, kinds: Kinds | None = None
    ) -> None:
        self._subscribing: dict[str, Bucket] = {}
        super().__init__(wire, endpoint, high_water_mark, kinds)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Otherwise libzmq reports only the first subscriber of a topic.
        self.raw.setsockopt(zmq.XPUB_VERBOSE, 1)

    def publish(self, message: Message, *, to: str = "") -> None:
        """Sends to all present subscribers, or only to the subscriber named ``to``."""
        # Handles pending subscriptions first, so that a new subscriber gets the message.
        self.look()
        topic = _topic_of(to) if to else _TOPIC
        self._send_frames([topic, *self._encode(message)])

    def new_subscribers(self) -> int:
        """Returns the number of new subscriptions; closes connections that subscribe too often."""
        came = 0
        for _ in range(_READ_AT_ONCE):
            frames = self._receive()
            if frames is None:
                break
            came += frames[0].bytes[:1] == b"\x01"
            if self.guarded and not self._may_subscribe(descriptor_of(frames[0])):
                self.end(frames[0])
        return came

    def _may_subscribe(self, connection: str) -> bool:
        now = time.monotonic()
        if connection not in self._subscribing:
            # Bounded by the number of file descriptors.
            self._subscribing[connection] = Bucket(_SUBSCRIPTIONS_PER_SECOND, _SUBSCRIPTIONS, now)
        return self._subscribing[connection].take(now)


class SubscriberSocket(Socket):
    """Receives messages that one endpoint publishes."""

    pattern = zmq.SUB
    binds = False
    sends = False

    def __init__(
        self,
        wire: Shared,
        endpoint: str,
        high_water_mark: int,
        kinds: Kinds | None = None,
        name: str = "",
    ) -> None:
        self._topics = [_TOPIC, _topic_of(name)] if name else [_TOPIC]
        super().__init__(wire, endpoint, high_water_mark, kinds)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # With 1 the subscription would be sent only when this component next uses the socket.
        self.raw.setsockopt(zmq.IMMEDIATE, 0)
        for topic in self._topics:
            self.raw.setsockopt(zmq.SUBSCRIBE, topic)

    def reconnect(self) -> None:
        """Replaces an in-process connection; messages that were not received yet are dropped.

        libzmq reads the first frame of a subscriber's message when its events are read, and aborts
        the process if the other frames vanish. Sockets of other patterns read whole messages.
        """
        while self._receive() is not None:
            pass
        super().reconnect()

    def receive(self) -> Message | None:
        """Returns the next valid message, or None if there is none now."""
        while (frames := self._receive()) is not None:
            if (message := self._decode(frames[1:])) is not None:
                return message
        return None
