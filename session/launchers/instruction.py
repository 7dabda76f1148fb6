"""Instructions and events that supervision returns."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from session.errors import START_AGAIN


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this component."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal; SIGKILL also goes to all processes that it has started."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the learner to end the run, repeatedly until it replies or ends.

    Args:
        reason: reason in ``result.json``.
        interrupted: True if a user ended the run.
        failed: True if a failure did.
    """

    reason: str
    interrupted: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """An event to report.

    Args:
        component: name of the component that it concerns; empty: the run.
        kind: ``lost``, ``restart``, ``ended``, ``failed``, ``scale``, ``stop`` or
            ``memory``.
        detail: the cause or the new state, in words.
    """

    component: str
    kind: str
    detail: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.component or "run", self.kind, self.detail)))


Instruction = Start | Signal | Stop | Event


@dataclass(frozen=True, slots=True)
class Failure:
    """Cause of a failed run: the first error of the component that could not be kept alive.

    Args:
        component: name of the component.
        error: the error in one line.
        details: output on standard error.
    """

    component: str
    error: str
    details: str = ""


def exit_error(exit_code: int) -> str:
    """Describes the end of a process that left no error message."""
    if exit_code == START_AGAIN:
        return "got SIGTERM or SIGINT while the run goes on"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
