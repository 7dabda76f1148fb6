"""What supervision wants done, and what it tells."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this component."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal; SIGKILL goes to all that the process has started, too."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the learner, until it answers or ends."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell.

    Args:
        component: name of the component that it is about; empty: the run.
        kind: ``lost``, ``restart``, ``ended``, ``failed``, ``scale`` or ``stop``.
        detail: the same in words.
    """

    component: str
    kind: str
    detail: str = ""


Instruction = Start | Signal | Ask | Event


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed: the first error of the component that could not be kept alive.

    Args:
        component: its name.
        error: the error in one line.
        details: all that it said on its standard error.
    """

    component: str
    error: str
    details: str = ""


def exit_error(exit_code: int) -> str:
    """Why a process ended that said nothing, in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
