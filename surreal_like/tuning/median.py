"""The median stopping rule."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from surreal_like.tuning.scheduler import (
    STOP,
    Decision,
    Decisions,
    Scheduler,
    check_mode,
    valid_score,
)


class MedianStopping(Scheduler):
    """Stops a trial that is worse than the median of the others (Golovin et al. 2017, Vizier).

    A trial is stopped if its best score is worse than the median of the other trials' mean scores
    up to its time.

    Args:
        grace_period: time before which no trial is stopped.
        min_samples: number of other trials that must have reported by then.
        mode: ``max`` or ``min`` of the score is best.
    """

    def __init__(self, grace_period: float, min_samples: int = 3, mode: str = "max") -> None:
        self._sign = check_mode(mode)
        self._grace_period, self._min_samples = grace_period, min_samples
        # Trial -> its reports, time and score; more is better.
        self._reports: dict[int, list[tuple[float, float]]] = {}

    def report(self, trial: int, time: float, score: float | None, **others: Any) -> Decisions:
        """Returns that the trial continues or stops."""
        if score is None or not valid_score(score):
            return {trial: Decision()}
        self._reports.setdefault(trial, []).append((time, self._sign * score))
        means = [
            fmean(scores)
            for other, reports in self._reports.items()
            if other != trial and (scores := [score for at, score in reports if at <= time])
        ]
        if time < self._grace_period or len(means) < max(1, self._min_samples):
            return {trial: Decision()}
        if max(score for _, score in self._reports[trial]) >= median(means):
            return {trial: Decision()}
        return {trial: Decision(then=STOP, reason=f"stopped by median at {time:g}")}

    def state(self) -> dict[str, Any]:
        """Returns all reports."""
        return {"reports": {str(n): [list(r) for r in rs] for n, rs in self._reports.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores all reports."""
        self._reports = {
            int(trial): [(at, score) for at, score in reports]
            for trial, reports in state["reports"].items()
        }
