"""Lines of log about clients: few in a minute for each address, whatever they do."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from session.line_limit import LineLimit
from surreal_like.gateway.port import EventLog

# Sessions of one address that are named when they begin, and when they end, in a minute.
_SESSIONS = 60


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
