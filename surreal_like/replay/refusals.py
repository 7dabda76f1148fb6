"""Refused requests for batches: reports each reason once, raises when only refusals come."""

from __future__ import annotations

import math

from session.errors import RunError
from session.process.clock import Clock

_MOST = 20
_SECONDS = 3.0
# Bounded, because reasons may hold numbers that change.
_REASONS = 100


class Refusals:
    """Counts refusals since the last batch, of all shards together.

    Args:
        clock: for the time since the first of them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: set[str] = set()
        self._new: list[str] = []
        self._in_a_row = 0
        self._first = ""
        self._since = math.inf

    def add(self, shard: str, reason: str) -> None:
        """Adds one refusal."""
        line = f"{shard}: {reason}"
        if line not in self._known and len(self._known) < _REASONS:
            self._known.add(line)
            self._new.append(line)
        if not self._in_a_row:
            self._first, self._since = line, self._clock.now()
        self._in_a_row += 1

    def clear(self) -> None:
        """Ends the series of refusals, because a batch has come."""
        self._in_a_row = 0

    @property
    def reason(self) -> str:
        """The first reason since the last batch, with its shard; empty without a refusal."""
        return self._first if self._in_a_row else ""

    def pop_new(self) -> list[str]:
        """Returns the reasons that are new since the last call, each with its shard."""
        new, self._new = self._new, []
        return new

    def check(self) -> None:
        """Raises RunError with the first reason after 20 refusals in a row and at least 3 s."""
        if self._in_a_row >= _MOST and self._clock.now() - self._since >= _SECONDS:
            raise RunError(
                f"replay gives no batch, every request is refused: {self._first} "
                f"({self._in_a_row} times)"
            )
