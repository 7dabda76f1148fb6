"""Delivers scores to the learner, also across a restart of the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.launchers.commands import NOTED
from session.process.clock import Clock
from session.wire import Message
from session.wire.requests import Call, DealerSocket, refusal
from session.wire.schema import Kinds

ANSWERS: Kinds = {"noted": NOTED}
_ANSWER_SECONDS = 5.0
_GIVE_UP_SECONDS = 60.0


class EvaluationReporter:
    """Reports one evaluation at a time, until the learner has acknowledged it.

    Args:
        socket: a dealer of ``learner.control`` for :data:`ANSWERS`.
        clock: clock for resending and for giving up.

    Attributes:
        best: mean return of the best evaluation known to the learner; None if it reported none.
    """

    def __init__(self, socket: DealerSocket, clock: Clock) -> None:
        self.socket = socket
        self.best: float | None = None
        self._clock = clock
        self._call: Call | None = None
        self._losses = 0

    @property
    def busy(self) -> bool:
        """True while a score has not been acknowledged."""
        return self._call is not None

    def report(self, score: Mapping[str, Any], flat: npt.NDArray[np.uint8] | None) -> None:
        """Starts to report a score.

        Args:
            score: the fields of ``evaluated``.
            flat: the evaluated parameters, sent if they are the best so far; None: they cannot
                become the best.
        """

        def make() -> Message:
            losses, self._losses = self._losses, self.socket.losses()
            if self._losses != losses:
                # A restarted learner may know less than the one that reported its best score.
                self.best = None
            better = self.best is None or score["mean_return"] > self.best
            arrays = {"flat": flat} if better and flat is not None else {}
            return Message("evaluated", dict(score), arrays)

        give_up_at = self._clock.now() + _GIVE_UP_SECONDS
        self._call = Call(make, again_seconds=_ANSWER_SECONDS, give_up_at=give_up_at, forget=True)

    def tick(self) -> bool | None:
        """Sends, resends and receives without blocking.

        Returns:
            None until the score is acknowledged. Then True if the same version must be evaluated
            again, else False. False also if the learner has been unreachable for too long.

        Raises:
            RefusedError: the learner does not accept the score.
        """
        if self._call is None:
            return None
        now = self._clock.now()
        answer = self.socket.ask(self._call, now)
        if answer is None and not self._call.given_up(now):
            return None
        self._call = None
        if answer is None:
            return False
        if answer.kind == "refused":
            raise refusal(answer)
        self.best = answer.fields.get("best", self.best)
        return bool(answer.fields.get("confirm", False))
