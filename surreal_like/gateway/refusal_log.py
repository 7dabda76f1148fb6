"""Refused clients: one event in a minute for each address, and answers that come later."""

from __future__ import annotations

from collections.abc import Callable

from session.stream.connection import Connection
from surreal_like.gateway.messages import Refusal
from surreal_like.gateway.port import EventLog
from surreal_like.gateway.replies import send_refusal

_SECONDS = 60.0
# More addresses than these share one entry.
_ADDRESSES = 1024
_OTHERS = "other addresses"
# While there are many wrong tokens, each is answered so late.
_DELAY_SECONDS = 1.0


class RefusalLog:
    """Reports why clients are refused, and how many were since the last report.

    Args:
        log: gets the events.
        now: returns the time in seconds.
    """

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        self._log, self._now = log, now
        # Address -> time of its last event, and refusals since.
        self._reported: dict[str, tuple[float, int]] = {}

    def add(self, address: str, reason: str) -> None:
        """Adds a refusal."""
        now = self._now()
        if address not in self._reported and len(self._reported) >= _ADDRESSES:
            self._forget(now)
            if len(self._reported) >= _ADDRESSES:
                address = _OTHERS
        at, count = self._reported.get(address, (-_SECONDS, 0))
        if now - at < _SECONDS:
            self._reported[address] = at, count + 1
            return
        self._reported[address] = now, 0
        more = f" ({count} more since the last such line)" if count else ""
        self._log.event("client_refused", f"{address}: {reason}{more}")

    def _forget(self, now: float) -> None:
        self._reported = {
            address: (at, count)
            for address, (at, count) in self._reported.items()
            if now - at < _SECONDS
        }


class DelayedRefusals:
    """Connections whose refusal is sent later, so that trying tokens takes long.

    Args:
        now: returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: dict[Connection, tuple[float, Refusal]] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._waiting

    def add(self, connection: Connection, refusal: Refusal) -> None:
        """Adds a refusal; what the connection sends until then is to be ignored."""
        self._waiting[connection] = self._now() + _DELAY_SECONDS, refusal

    def discard(self, connection: Connection) -> None:
        """Forgets a connection that is gone."""
        self._waiting.pop(connection, None)

    def send_due(self) -> None:
        """Sends what is due."""
        now = self._now()
        for connection, (due, refusal) in list(self._waiting.items()):
            if now >= due:
                del self._waiting[connection]
                send_refusal(connection, refusal)
