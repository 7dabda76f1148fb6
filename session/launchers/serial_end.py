"""End of a serial run: a request to the learner, then the others end in a fixed order."""

from __future__ import annotations

import math
from dataclasses import asdict

from session.launchers.commands import ANSWERS
from session.launchers.instruction import Stop
from session.service import Frame
from session.wire import Wire

_CLIENTS = ("agent", "evaluator")
TELEMETRY = ("tensorplex", "loggerplex", "tensorboard")
_ASK_AGAIN_SECONDS = 1.0


class Owner:
    """The learner, which owns the run, and the pending request to it.

    Args:
        frame: of the learner.
        wire: makes the socket for requests.
    """

    def __init__(self, frame: Frame, wire: Wire) -> None:
        self.frame = frame
        self.wire = wire
        self._dealer = wire.dealer("learner.control", ANSWERS)
        self._asked: Stop | None = None
        self._ask_at = 0.0

    def ask(self, question: Stop) -> None:
        """Sets the request that :meth:`tick` sends."""
        self._asked = question

    def tick(self, now: float) -> None:
        """Sends the request, repeatedly until the learner replies."""
        if self._asked is None:
            return
        if now >= self._ask_at and self._dealer.send("stop", asdict(self._asked)):
            self._ask_at = now + _ASK_AGAIN_SECONDS
        answer = self._dealer.receive()
        if answer is not None and answer.kind != "refused":
            self._asked = None


class Leaving:
    """Ends the rest after the learner: agents end by themselves, then servers, then telemetry.

    Args:
        frames: all components.
        grace_seconds: time after which the remaining agents and evaluators are asked to end.
    """

    def __init__(self, frames: list[Frame], grace_seconds: float) -> None:
        self._frames = frames
        self._grace_seconds = grace_seconds
        self._group: list[Frame] = []
        self._deadline = math.inf

    def tick(self, now: float) -> None:
        """Asks the next group of components to end, when it is its turn."""
        group = self._next()
        if group != self._group:
            self._group, self._deadline = group, now + self._grace_seconds
        clients = any(frame.context.component.kind in _CLIENTS for frame in group)
        if not clients or now > self._deadline:
            for frame in group:
                # From now on the frame enforces the deadline.
                frame.context.stopping = True

    def _next(self) -> list[Frame]:
        """Returns the components whose turn it is to end."""
        living = [frame for frame in self._frames if not frame.finished]
        clients = [frame for frame in living if frame.context.component.kind in _CLIENTS]
        servers = [frame for frame in living if frame.context.component.kind not in TELEMETRY]
        return clients or servers or living
