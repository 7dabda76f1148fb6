"""The end of what sends experience: its last acks, and its account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from session.process.context import Context
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.ps.parameter_client import ParameterClient

# Shares of the grace period: for the last acks, then for the leave message.
_ACKS_SHARE = 0.7
_FAREWELL_SHARE = 0.2


class Leaving:
    """Waits for the last acks, then for the parameter server's reply to the leave message.

    Args:
        context: context of the process.
        sender: sender of its experience.
        client: client of the parameter server.
        account: returns the account for the leave message.

    Attributes:
        begun: True once no more experience is made.
        over: True once everything is sent, or the time is up.
    """

    def __init__(
        self,
        context: Context,
        sender: ExpSender,
        client: ParameterClient,
        account: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.begun = self.over = False
        self._context, self._sender, self._client = context, sender, client
        self._account = account
        self._grace_seconds: float = context.config.session_config.launcher.grace_seconds
        self._acked = False
        self._deadline = 0.0

    @property
    def done(self) -> bool:
        """True once the process may end."""
        return self.over and self._context.may_exit

    def begin(self) -> None:
        """Begins to wait; the caller sends its last rows and the goodbye."""
        self.begun = True
        share = 0.0 if self._context.orphaned else _ACKS_SHARE
        self._deadline = self._context.clock.now() + share * self._grace_seconds

    def tick(self) -> None:
        """Continues with what can be done now."""
        now = self._context.clock.now()
        if not self._acked:
            self._sender.pump()
            if self._sender.window.empty or now >= self._deadline:
                self._acked = True
                self._report_unacked()
                self._deadline = now + _FAREWELL_SHARE * self._grace_seconds
        elif not self.over:
            noted = self._client.leave(self._account())
            self.over = bool(noted) or now >= self._deadline

    def _report_unacked(self) -> None:
        """Reports rows that replay has not taken in time: no process keeps them any more."""
        if rows := self._sender.window.unacked:
            text = f"{rows:,} rows were not acknowledged in time, and are lost if replay lacks them"
            self._context.event("rows_unacked", text, rows=rows)
