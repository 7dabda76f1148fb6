"""Sockets that carry messages one way: PUSH to PULL, XPUB to SUB."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import zmq

from session.wire.codec import Message
from session.wire.schema import Kinds
from session.wire.socket import Counters as Counters
from session.wire.socket import Socket as Socket
from session.wire.socket import descriptor_of
from session.wire.socket import poll as poll
from session.wire.turns import Bucket

if TYPE_CHECKING:
    from session.wire.wire import Wire

_TOPIC = b"p"
# Messages that do not fit, and subscriptions, that are read before a service goes on.
_READ_AT_ONCE = 256
# A component subscribes twice when it connects.
_SUBSCRIPTIONS, _SUBSCRIPTIONS_PER_SECOND = 64.0, 2.0


def _topic_of(name: str) -> bytes:
    """Topics are compared as prefixes, so each has an end."""
    return b"t" + name.encode() + b"/"


class PushSocket(Socket):
    """Sends one way; what cannot leave now is the caller's to keep."""

    pattern = zmq.PUSH
    binds = False

    def send(self, message: Message) -> bool:
        """Sends without waiting; False if there is no peer or it is full.

        Raises:
            OversizeError: the message is larger than the run allows.
        """
        return self._may_send() and self._send_frames(self._encode(message))


class PullSocket(Socket):
    """Receives what the peers push."""

    pattern = zmq.PULL
    binds = True
    sends = False

    def receive(self) -> Message | None:
        """The next good message, or None if there is none now.

        libzmq reads its connections in turn, so that one which floods delays the others by one
        message each; those that read decide how many they take before they do something else.
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
        self, wire: Wire, endpoint: str, high_water_mark: int, kinds: Kinds | None = None
    ) -> None:
        self._subscribing: dict[str, Bucket] = {}
        super().__init__(wire, endpoint, high_water_mark, kinds)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Without it only the first subscriber of a topic is seen.
        self.raw.setsockopt(zmq.XPUB_VERBOSE, 1)

    def publish(self, message: Message, *, to: str = "") -> None:
        """Sends to whoever listens now, or only to the subscriber of that name."""
        # Whoever has just come must not miss it.
        self.look()
        topic = _topic_of(to) if to else _TOPIC
        self._send_frames([topic, *self._encode(message)])

    def new_subscribers(self) -> int:
        """How many subscribers came since the last call; those that subscribe without end leave."""
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
            # As many as there are descriptors.
            self._subscribing[connection] = Bucket(_SUBSCRIPTIONS_PER_SECOND, _SUBSCRIPTIONS, now)
        return self._subscribing[connection].take(now)


class SubscriberSocket(Socket):
    """Receives what one endpoint publishes."""

    pattern = zmq.SUB
    binds = False
    sends = False

    def __init__(
        self,
        wire: Wire,
        endpoint: str,
        high_water_mark: int,
        kinds: Kinds | None = None,
        name: str = "",
    ) -> None:
        self._topics = [_TOPIC, _topic_of(name)] if name else [_TOPIC]
        super().__init__(wire, endpoint, high_water_mark, kinds)

    def _configure(self, high_water_mark: int) -> None:
        super()._configure(high_water_mark)
        # Or the subscription leaves only when this component next looks at the socket.
        self.raw.setsockopt(zmq.IMMEDIATE, 0)
        for topic in self._topics:
            self.raw.setsockopt(zmq.SUBSCRIBE, topic)

    def receive(self) -> Message | None:
        """The next good message, or None if there is none now."""
        while (frames := self._receive()) is not None:
            if (message := self._decode(frames[1:])) is not None:
                return message
        return None
