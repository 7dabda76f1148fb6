"""Asynchronous successive halving: at rungs of growing time the worse trials are stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from surreal_like.tuning.scheduler import (
    STOP,
    Decision,
    Decisions,
    Scheduler,
    check_mode,
    valid_score,
)


class SuccessiveHalving(Scheduler):
    """ASHA (Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning, algorithm 2).

    Args:
        grace_period: time of the first rung, above 0.
        max_time: time at which every trial is stopped.
        reduction_factor: quotient of two rungs' times, and of trials before and after a rung.
        mode: ``max`` or ``min`` of the score is best.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, grace_period: float, max_time: float, reduction_factor: float = 3, mode: str = "max"
    ) -> None:
        if not 0 < grace_period < max_time:
            raise ValueError(
                f"grace_period is {grace_period:g}, expected above 0 and below max_time, "
                f"{max_time:g}"
            )
        if reduction_factor <= 1:
            raise ValueError(f"reduction_factor is {reduction_factor:g}, expected above 1")
        self._sign = check_mode(mode)
        self._factor, self._max_time = reduction_factor, max_time
        rungs, rung = [], float(grace_period)
        while rung < max_time:
            rungs.append(rung)
            rung *= reduction_factor
        self.rungs = tuple(rungs)
        # Rung -> scores in the order in which trials have passed it; more is better.
        self._scores: list[list[float]] = [[] for _ in rungs]
        # Trial -> number of rungs that it has passed.
        self._passed: dict[int, int] = {}

    def report(self, trial: int, time: float, score: float | None, **others: Any) -> Decisions:
        """Returns that the trial continues, or stops at a rung."""
        reason = ""
        for number in range(self._passed.get(trial, 0), len(self.rungs)):
            if time < self.rungs[number]:
                break
            self._passed[trial] = number + 1
            # A report without a score passes its rungs: it is noted at none.
            if score is not None and valid_score(score):
                good = self._note(number, self._sign * score)
                reason = reason or ("" if good else f"stopped by asha at {self.rungs[number]:g}")
        if time >= self._max_time:
            reason = reason or f"stopped by asha at {self._max_time:g}"
        return {trial: Decision(then=STOP, reason=reason) if reason else Decision()}

    def _note(self, number: int, score: float) -> bool:
        scores = self._scores[number]
        better = sum(other >= score for other in scores)
        scores.append(score)
        return better < math.ceil(len(scores) / self._factor)

    def state(self) -> dict[str, Any]:
        """Returns the scores at all rungs."""
        passed = {str(trial): rungs for trial, rungs in self._passed.items()}
        return {"scores": [list(each) for each in self._scores], "passed": passed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the scores at all rungs; a larger budget has further ones."""
        for scores, before in zip(self._scores, state["scores"], strict=False):
            scores[:] = before
        self._passed = {int(trial): rungs for trial, rungs in state["passed"].items()}
