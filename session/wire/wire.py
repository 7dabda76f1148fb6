"""The wire of one component: makes its sockets from endpoint names and closes them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from session.wire.one_way_sockets import PublisherSocket, PullSocket, PushSocket, SubscriberSocket
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.schema import Kinds
from session.wire.socket_base import Counters, Socket
from session.wire.socket_state import Shared


class Wire(Shared):
    """Makes the sockets of one component and closes them; owns no ZeroMQ context."""

    sockets: list[Socket]

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
