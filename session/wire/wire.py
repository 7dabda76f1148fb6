"""The wire of one component: makes its sockets from endpoint names and closes them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import zmq

from session.line_limit import LineLimit
from session.wire.codec import Identity
from session.wire.endpoint import AddressBook
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.schema import Kinds
from session.wire.security import Security
from session.wire.socket import Counters, Socket
from session.wire.sockets import PublisherSocket, PullSocket, PushSocket, SubscriberSocket, poll
from session.wire.zap_handler import ZapHandler


class Wire:
    """Makes the sockets of one component and closes them; owns no ZeroMQ context.

    Args:
        context: the one context of this process.
        addresses: address of each endpoint.
        identity: stamped on every message.
        max_message_bytes: maximum size of a message; both sides refuse larger ones.
        stopping: returns True once waiting must end.
        pause: called with sockets and a time [s] while a request waits; the serial launcher runs
            the other components in it.
        on_reject: called with (endpoint, sender name, reason) once per endpoint, sender and kind.
        security: keys of the run, and limits; None: no keys, so sockets bind only to loopback.

    Attributes:
        knows: sender name -> True if the run has it; binding sockets refuse all others.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        addresses: AddressBook,
        identity: Identity,
        *,
        max_message_bytes: int = 1 << 28,
        stopping: Callable[[], bool] = lambda: False,
        pause: Callable[[Sequence[Socket], float], None] = poll,
        on_reject: Callable[[str, str, str], None] = lambda endpoint, sender, reason: None,
        security: Security | None = None,
    ) -> None:
        self.context = context
        self.addresses = addresses
        self.identity = identity
        self.max_message_bytes = max_message_bytes
        self.stopping = stopping
        self.pause = pause
        self.knows: Callable[[str], bool] = lambda name: True
        # Asked only where a connection is missing.
        self.run_over: Callable[[], bool] = lambda: False
        self.security = Security() if security is None else security
        self.sockets: list[Socket] = []
        # Endpoint -> bound socket of a component that has ended while its process goes on.
        self.retired: dict[str, zmq.Socket[bytes]] | None = None
        self._zap: ZapHandler | None = None
        self._warnings: list[str] = []
        self._on_reject = on_reject
        self._complaints = LineLimit(time.monotonic, seconds=math.inf)

    def pull(
        self, endpoint: str, kinds: Kinds | None = None, *, high_water_mark: int = 8
    ) -> PullSocket:
        """Binds the receiver of a one-way stream; ``kinds`` as in :meth:`router`."""
        return PullSocket(self, endpoint, high_water_mark, kinds)

    def push(self, endpoint: str, *, high_water_mark: int = 8) -> PushSocket:
        """Connects the sender of a one-way stream."""
        return PushSocket(self, endpoint, high_water_mark)

    def publisher(self, endpoint: str, *, high_water_mark: int = 8) -> PublisherSocket:
        """Binds a publisher that is informed of each new subscriber."""
        return PublisherSocket(self, endpoint, high_water_mark)

    def subscriber(
        self, endpoint: str, kinds: Kinds | None = None, *, high_water_mark: int = 8, name: str = ""
    ) -> SubscriberSocket:
        """Connects a subscriber to the messages that the endpoint publishes to all.

        Args:
            endpoint: name of the endpoint.
            kinds: as in :meth:`router`.
            high_water_mark: maximum number of queued messages.
            name: also receives messages published to this name alone.
        """
        return SubscriberSocket(self, endpoint, high_water_mark, kinds, name)

    def router(
        self,
        endpoint: str,
        kinds: Kinds | None = None,
        *,
        high_water_mark: int = 1000,
        any_key: bool = False,
    ) -> RouterSocket:
        """Binds a server of requests.

        Args:
            endpoint: name of the endpoint.
            kinds: schema of each accepted kind; other messages are refused, counted and reported,
                and not returned. None, for tests only: accepts every message that decodes.
            high_water_mark: maximum number of queued messages per peer.
            any_key: admits every key, but only small messages.
        """
        return RouterSocket(self, endpoint, high_water_mark, kinds, any_key=any_key)

    def dealer(
        self, endpoint: str, kinds: Kinds | None = None, *, high_water_mark: int = 1000
    ) -> DealerSocket:
        """Returns the client for requests to an endpoint; all its callers share one connection.

        Args:
            endpoint: name of the endpoint.
            kinds: schema of each kind of reply that this caller accepts; None, for tests only.
            high_water_mark: maximum number of queued messages.
        """
        for socket in self.sockets:
            if isinstance(socket, DealerSocket) and socket.endpoint == endpoint:
                socket.add_kinds(kinds)
                return socket
        return DealerSocket(self, endpoint, high_water_mark, kinds)

    @property
    def zap(self) -> ZapHandler:
        """Decides on connections; made for the first socket that is bound with keys."""
        if self._zap is None:
            self._zap = ZapHandler(self.context, self.security)
        return self._zap

    @property
    def refused_connections(self) -> int:
        """Number of refused connections."""
        return 0 if self._zap is None else self._zap.refused

    def check(self) -> list[str]:
        """Returns new warnings since the last call: refused and missing connections.

        Raises:
            AdmissionError: another component refuses this one permanently.
        """
        warnings, self._warnings = self._warnings, []
        warnings += [] if self._zap is None else self._zap.pop_refusals()
        return [*warnings, *filter(None, [socket.check() for socket in self.sockets])]

    def add_warning(self, text: str | None) -> None:
        """Keeps a warning for the next :meth:`check`."""
        if text:
            self._warnings.append(text)

    @property
    def ever_connected(self) -> bool:
        """True once any of its sockets has been connected."""
        return any(each.link is not None and each.link.ever_connected for each in self.sockets)

    def problem(self) -> str | None:
        """Describes the first missing connection, None if there is none."""
        now = time.monotonic()
        problems = (each.link.problem(now) for each in self.sockets if each.link is not None)
        return next(filter(None, problems), None)

    def counters(self) -> Mapping[str, Counters]:
        """Returns endpoint -> counters of its socket."""
        return {socket.endpoint: socket.counters for socket in self.sockets}

    def reconnect(self, endpoints: Collection[str]) -> None:
        """Connects anew to a component of this process that binds these endpoints again."""
        for socket in self.sockets:
            if not socket.binds and socket.endpoint in endpoints:
                socket.reconnect()

    def close(self, linger_seconds: float = 1.0) -> None:
        """Closes every socket; libzmq sends queued messages for at most ``linger_seconds``."""
        while self.sockets:
            self.sockets[-1].close(linger_seconds)
        if self._zap is not None:
            self._zap.close()
            self._zap = None

    def reject(self, endpoint: str, sender: str, reason: str, *, kind: str = "") -> None:
        """Reports a refused message, once per endpoint, sender and kind.

        All names that no component of this run has count as one sender, so that the record of
        reports is bounded by the names of the run.
        """
        known = sender if self.knows(sender) else ""
        if self._complaints.admit(f"{endpoint}/{known}", kind) is not None:
            self._on_reject(endpoint, sender, reason)
