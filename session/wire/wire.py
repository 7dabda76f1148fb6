"""The wire of one component: makes its sockets from endpoint names, and closes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import zmq

from session.wire.codec import Identity
from session.wire.endpoint import AddressBook
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.sockets import (
    Counters,
    PublisherSocket,
    PullSocket,
    PushSocket,
    Socket,
    SubscriberSocket,
    poll,
)


class Wire:
    """Makes the sockets of one component and closes them; owns no ZeroMQ context.

    Args:
        context: the one context of this process.
        addresses: where each endpoint is.
        identity: stamped on every message.
        max_message_bytes: larger messages are refused on both sides.
        stopping: true once waiting must end.
        pause: called with the sockets to wait for and seconds, while a request waits; the serial
            launcher ticks the other components there.
        on_reject: called with (endpoint, sender name, reason) once per sender and endpoint.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        addresses: AddressBook,
        identity: Identity,
        *,
        max_message_bytes: int = 1 << 28,
        stopping: Callable[[], bool] = lambda: False,
        pause: Callable[[list[zmq.Socket[bytes]], float], None] = poll,
        on_reject: Callable[[str, str, str], None] = lambda endpoint, sender, reason: None,
    ) -> None:
        self.context = context
        self.addresses = addresses
        self.identity = identity
        self.max_message_bytes = max_message_bytes
        self.stopping = stopping
        self.pause = pause
        self.sockets: list[Socket] = []
        self._on_reject = on_reject
        self._complained: set[tuple[str, str]] = set()

    def pull(self, endpoint: str, *, high_water_mark: int = 8) -> PullSocket:
        """Binds the receiving end of a one-way stream."""
        return PullSocket(self, endpoint, high_water_mark)

    def push(self, endpoint: str, *, high_water_mark: int = 8) -> PushSocket:
        """Connects the sending end of a one-way stream."""
        return PushSocket(self, endpoint, high_water_mark)

    def publisher(self, endpoint: str, *, high_water_mark: int = 8) -> PublisherSocket:
        """Binds a publisher that sees each new subscriber."""
        return PublisherSocket(self, endpoint, high_water_mark)

    def subscriber(self, endpoint: str, *, high_water_mark: int = 8) -> SubscriberSocket:
        """Connects a subscriber of everything that the endpoint publishes."""
        return SubscriberSocket(self, endpoint, high_water_mark)

    def router(self, endpoint: str, *, high_water_mark: int = 1000) -> RouterSocket:
        """Binds the answering end of requests."""
        return RouterSocket(self, endpoint, high_water_mark)

    def dealer(self, endpoint: str, *, high_water_mark: int = 1000) -> DealerSocket:
        """Connects the asking end of requests."""
        return DealerSocket(self, endpoint, high_water_mark)

    def counters(self) -> Mapping[str, Counters]:
        """Endpoint -> what its socket has seen."""
        return {socket.endpoint: socket.counters for socket in self.sockets}

    def close(self, linger_seconds: float = 1.0) -> None:
        """Closes every socket; what was sent may still leave for ``linger_seconds``."""
        while self.sockets:
            self.sockets[-1].close(linger_seconds)

    def reject(self, endpoint: str, sender: str, reason: str) -> None:
        """Reports a refused message, once per sender and endpoint."""
        if (endpoint, sender) not in self._complained:
            self._complained.add((endpoint, sender))
            self._on_reject(endpoint, sender, reason)
