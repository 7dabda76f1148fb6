"""How a serial run ends: the learner is asked, then the others leave in their order."""

from __future__ import annotations

import math

from session.launchers.commands import ANSWERS
from session.launchers.instruction import Ask
from session.service import Frame
from session.wire import Wire

_CLIENTS = ("agent", "evaluator")
TELEMETRY = ("tensorplex", "loggerplex", "tensorboard")
_ASK_AGAIN_SECONDS = 1.0


class Owner:
    """The learner, which owns the run, and how it is asked to end it.

    Args:
        frame: the learner's.
        wire: makes the socket for asking.
    """

    def __init__(self, frame: Frame, wire: Wire) -> None:
        self.frame = frame
        self.wire = wire
        self._dealer = wire.dealer("learner.control", ANSWERS)
        self._asked: Ask | None = None
        self._ask_at = 0.0

    def ask(self, question: Ask) -> None:
        """From now on asks this."""
        self._asked = question

    def tick(self, now: float) -> None:
        """Asks until there is an answer."""
        if self._asked is None:
            return
        if now >= self._ask_at and self._dealer.send(self._asked.kind, self._asked.fields):
            self._ask_at = now + _ASK_AGAIN_SECONDS
        answer = self._dealer.receive()
        if answer is not None and answer.kind != "refused":
            self._asked = None


class Leaving:
    """Once the learner has gone: agents leave by themselves, then servers, then telemetry.

    Args:
        frames: all components.
        grace_seconds: after which agents and evaluators that have not left are told to.
    """

    def __init__(self, frames: list[Frame], grace_seconds: float) -> None:
        self._frames = frames
        self._grace_seconds = grace_seconds
        self._group: list[Frame] = []
        self._deadline = math.inf

    def tick(self, now: float) -> None:
        """Sees to it that the next ones leave."""
        group = self._next()
        if group != self._group:
            self._group, self._deadline = group, now + self._grace_seconds
        clients = any(frame.context.component.kind in _CLIENTS for frame in group)
        if not clients or now > self._deadline:
            for frame in group:
                # From then on its frame keeps the deadline.
                frame.context.stopping = True

    def _next(self) -> list[Frame]:
        """Those whose turn it is to leave."""
        living = [frame for frame in self._frames if not frame.finished]
        clients = [frame for frame in living if frame.context.component.kind in _CLIENTS]
        servers = [frame for frame in living if frame.context.component.kind not in TELEMETRY]
        return clients or servers or living
