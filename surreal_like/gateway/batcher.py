"""Selects the waiting requests that are answered next; no socket, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from surreal_like.gateway.messages import Request
from surreal_like.gateway.sessions import Member


class Batch(NamedTuple):
    """Requests of sessions of one mode, the longest waiting first."""

    mode: str
    members: list[Member]
    requests: list[Request]


class Batcher:
    """The requests to which an answer is owed.

    Args:
        most: requests in a batch.
        wait_seconds: for which the oldest request may wait for company.
    """

    def __init__(self, most: int, wait_seconds: float = 0.0) -> None:
        self._most = most
        self._wait_seconds = wait_seconds
        self._waiting: dict[str, dict[Member, Request]] = {}

    def add(self, member: Member, request: Request) -> None:
        """Adds a request; its session waits from ``member.asked_at`` on."""
        self._waiting.setdefault(member.mode, {})[member] = request

    def discard(self, member: Member) -> None:
        """Forgets the request of a session, if there is one."""
        self._waiting.get(member.mode, {}).pop(member, None)

    def take(
        self, now: float, sessions: Iterable[Member], may_answer: Callable[[str], bool]
    ) -> Batch | None:
        """Removes and returns the next batch; None if there is none now.

        Args:
            now: the time in seconds.
            sessions: all; a batch does not wait if none of them could still join it.
            may_answer: returns True for a mode whose requests can be answered.
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
        members = list(islice(waiting, self._most))
        return Batch(mode, members, [waiting.pop(member) for member in members])

    def _is_early(self, now: float, mode: str, sessions: Iterable[Member]) -> bool:
        waiting = self._waiting[mode]
        oldest = next(iter(waiting))
        if len(waiting) >= self._most or now - oldest.asked_at >= self._wait_seconds:
            return False
        return any(
            each.mode == mode and each.connection is not None and each not in waiting
            for each in sessions
        )
