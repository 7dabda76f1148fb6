"""Deadlines of the components of a run: one that misses its deadline is killed."""

from __future__ import annotations

from dataclasses import dataclass

from session.process.state import State

# Components enforce their own deadlines; the supervisor waits a little longer.
_MARGIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of a process.

    Args:
        starting_seconds: from its start until its service runs.
        silent_seconds: between two heartbeats of a running component.
        grace_seconds: from a request to end until the process has ended.
    """

    starting_seconds: float
    silent_seconds: float
    grace_seconds: float

    @property
    def patience_seconds(self) -> float:
        """Seconds from a request to end until the process is killed."""
        return self.grace_seconds + min(_MARGIN_SECONDS, self.grace_seconds)

    def of(self, state: State) -> float:
        """Returns the longest time in a state of a living process, in seconds.

        In ``running`` it is the longest time between two heartbeats.
        """
        return {
            State.starting: self.starting_seconds + _MARGIN_SECONDS,
            State.running: self.silent_seconds,
            State.draining: self.patience_seconds,
        }[state]
