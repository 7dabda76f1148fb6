"""Batches of requests that are answered together, and how long they wait for company."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from surreal_like.addons.gateway.messages import Request
from surreal_like.addons.gateway.sessions import Session


class Batch(NamedTuple):
    """Requests of sessions of one mode, the longest waiting first."""

    mode: str
    sessions: list[Session]
    requests: list[Request]


class Batcher:
    """The requests to which an answer is owed.

    Args:
        most: Maximum number of requests in a batch.
        wait_seconds: Time for which the oldest request may wait for company.
    """

    def __init__(self, most: int, wait_seconds: float = 0.0) -> None:
        self._most = most
        self._wait_seconds = wait_seconds
        self._waiting: dict[str, dict[Session, Request]] = {}

    def add(self, session: Session, request: Request) -> None:
        """Adds a request; its session waits from ``session.asked_at`` on."""
        self._waiting.setdefault(session.mode, {})[session] = request

    def discard(self, session: Session) -> None:
        """Forgets the request of a session, if there is one."""
        self._waiting.get(session.mode, {}).pop(session, None)

    def pop(
        self, now: float, sessions: Iterable[Session], may_answer: Callable[[str], bool]
    ) -> Batch | None:
        """Removes and returns the next batch; None if there is none now.

        Args:
            now: Time in seconds.
            sessions: All sessions; a batch does not wait if none of them could still join it.
            may_answer: Function that returns True for a mode whose requests can be answered.
        """
        ready = [mode for mode, waiting in self._waiting.items() if waiting and may_answer(mode)]
        if not ready:
            return None
        mode = ready[0]
        if len(ready) > 1:
            mode = min(ready, key=lambda each: next(iter(self._waiting[each])).asked_at)
        waiting = self._waiting[mode]
        if self._wait_seconds and self._is_early(now, mode, sessions):
            return None
        chosen = list(islice(waiting, self._most))
        return Batch(mode, chosen, [waiting.pop(session) for session in chosen])

    def _is_early(self, now: float, mode: str, sessions: Iterable[Session]) -> bool:
        waiting = self._waiting[mode]
        oldest = next(iter(waiting))
        if len(waiting) >= self._most or now - oldest.asked_at >= self._wait_seconds:
            return False
        return any(
            each.mode == mode and each.connection is not None and each not in waiting
            for each in sessions
        )
