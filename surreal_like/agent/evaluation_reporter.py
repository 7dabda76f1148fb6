"""Delivers scores to the learner, also across a restart of the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.clock import Clock
from session.errors import RefusedError
from session.launchers.commands import NOTED
from session.wire.requests import DealerSocket
from session.wire.schema import Kinds

ANSWERS: Kinds = {"noted": NOTED}
_ANSWER_SECONDS = 5.0
_GIVE_UP_SECONDS = 60.0


class EvaluationReporter:
    """Reports one evaluation at a time, until the learner has acknowledged it.

    Args:
        socket: a dealer of ``learner.control`` for :data:`ANSWERS`.
        clock: for resending and for giving up.

    Attributes:
        best: mean return of the best evaluation known to the learner; None if it reported none.
    """

    def __init__(self, socket: DealerSocket, clock: Clock) -> None:
        self.socket = socket
        self.best: float | None = None
        self._clock = clock
        self._score: Mapping[str, Any] | None = None
        self._flat: npt.NDArray[np.uint8] | None = None
        self._id: int | None = None
        self._again_at = self._give_up_at = 0.0
        # The first call starts the monitoring of the connection.
        list(socket.connection_events())

    @property
    def busy(self) -> bool:
        """True while a score has not been acknowledged."""
        return self._score is not None

    def report(self, score: Mapping[str, Any], flat: npt.NDArray[np.uint8] | None) -> None:
        """Starts to report a score.

        Args:
            score: the fields of ``evaluated``.
            flat: the evaluated parameters, sent if they are the best so far; None: they cannot
                become the best.
        """
        self._score, self._flat, self._id = score, flat, None
        self._give_up_at = self._clock.now() + _GIVE_UP_SECONDS

    def tick(self) -> bool | None:
        """Sends, resends and receives without blocking.

        Returns:
            None until the score is acknowledged. Then True if the same version must be evaluated
            again, else False. False also if the learner has been unreachable for too long.

        Raises:
            RefusedError: the learner does not accept the score.
        """
        if self._score is None:
            return None
        now = self._clock.now()
        if False in self.socket.connection_events():
            # A restarted learner may know less than the one that reported its best score.
            self._id, self.best = None, None
        if self._id is None or now >= self._again_at:
            self._send(now)
        while (answer := self.socket.receive()) is not None:
            if answer.fields["id"] == self._id:
                self._score = self._flat = None
                if answer.kind == "refused":
                    raise RefusedError(str(answer.fields.get("reason", "refused without a reason")))
                self.best = answer.fields.get("best", self.best)
                return bool(answer.fields.get("confirm", False))
        if now >= self._give_up_at:
            self._score = self._flat = None
            return False
        return None

    def _send(self, now: float) -> None:
        assert self._score is not None  # busy
        best = self.best is None or self._score["mean_return"] > self.best
        arrays = {"flat": self._flat} if best and self._flat is not None else {}
        self._id = self.socket.send("evaluated", dict(self._score), arrays)
        self._again_at = now + _ANSWER_SECONDS
