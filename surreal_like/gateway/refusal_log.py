"""What happens to clients: few lines in a minute for each address, and answers that come later."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from session.line_limit import LineLimit
from session.stream.connection import Connection
from surreal_like.gateway.messages import Refusal
from surreal_like.gateway.port import EventLog
from surreal_like.gateway.replies import send_refusal

# Sessions of one address that are named when they begin, and when they end, in a minute.
_SESSIONS = 20
# While there are many wrong tokens, each is answered so late.
_DELAY_SECONDS = 1.0


class ClientLog:
    """Reports what clients do and why they are refused; what a stranger can cause is bounded.

    Args:
        log: gets the events and warnings.
        now: returns the time in seconds.
    """

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        self._log = log
        self._refusals = LineLimit(now)
        self._sessions = LineLimit(now, lines=_SESSIONS)

    def refused(self, address: str, reason: str) -> None:
        """Reports a refusal: one line in a minute for each address and kind of reason.

        Args:
            address: of the client.
            reason: its kind, or its kind, a colon and details.
        """
        more = self._refusals.admit(address, reason.partition(":")[0])
        if more is not None:
            self._log.event("client_refused", f"{address}: {reason}{more}")

    def joined(self, name: str, address: str) -> None:
        """Reports that a session has begun."""
        self._session("client_joined", address, f"{name} from {address}")

    def left(self, address: str, text: str) -> None:
        """Reports that a session has ended."""
        self._session("client_left", address, text)

    def _session(self, kind: str, address: str, text: str) -> None:
        more = self._sessions.admit(address, kind)
        if more is not None:
            self._log.event(kind, f"{text}{more}")

    def defect(self, error: Exception) -> None:
        """Reports a defect of this program with its traceback, each place once a minute."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        more = self._refusals.admit("", f"{frame.filename}:{frame.lineno}")
        if more is not None:
            self._log.warning("".join(traceback.format_exception(error)) + more)


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
