"""Schedulers decide at each report of a trial if it goes on, saves, loads another one, or stops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from session.config.merge import quote

CONTINUE, PAUSE, STOP = "continue", "pause", "stop"
# Reports of one trial that are kept: a machine can send any number of them.
REPORTS_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """Instruction to take over the checkpoint of another trial.

    Args:
        donor: number of that trial.
        settings: settings of the recipient from then on.
    """

    donor: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """Instruction for one trial.

    Args:
        save: True if the trial saves a checkpoint.
        load: the exploit that it carries out, None: none.
        then: ``continue``, ``pause`` or ``stop``.
        reason: reason of a stop.
        skipped: reason for which an exploit was left out; empty: none was.
    """

    save: bool = False
    load: Load | None = None
    then: str = CONTINUE
    reason: str = ""
    skipped: str = ""


Decisions = dict[int, Decision]


class Scheduler:
    """Decides about trials, which are numbers; has no clock. This one lets all of them continue."""

    def report(
        self,
        trial: int,
        time: float,
        score: float | None,
        *,
        now: float | None = None,
        others_wait: bool = False,
    ) -> Decisions:
        """Returns decisions that follow from a report; empty while the trial is held.

        Args:
            trial: number of the trial.
            time: progress of its weights, in the unit of the tuning.
            score: None, NaN and infinite values are no score.
            now: wall clock [s]; None: the ages of checkpoints do not matter.
            others_wait: True if other trials wait for a slot.
        """
        return {trial: Decision()}

    def on_end(self, trial: int) -> Decisions:
        """Returns decisions that follow from the end of a trial."""
        return {}

    def on_load(self, trial: int, settings: Mapping[str, Any] | None) -> None:
        """Records whether the newest load of a trial was carried out.

        Args:
            trial: number of the recipient.
            settings: settings from now on; None: the load could not be carried out.
        """

    def state(self) -> dict[str, Any]:
        """Returns plain data for :meth:`restore`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`state`."""


class Fifo(Scheduler):
    """Lets every trial run to its own end."""


def valid_score(score: float | None) -> bool:
    """True for a finite number."""
    return score is not None and math.isfinite(score)


def check_mode(mode: str) -> float:
    """Returns the factor of scores with which more is better.

    Raises:
        ValueError: the mode is neither ``max`` nor ``min``.
    """
    if mode not in ("max", "min"):
        raise ValueError(f"mode is {mode!r}, expected max or min")
    return 1.0 if mode == "max" else -1.0


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
        reports = self._reports.setdefault(trial, [])
        reports.append((time, self._sign * score))
        if len(reports) > REPORTS_LIMIT:
            # The mean of every second one is nearly the same; the best one is needed.
            reports[:] = sorted({*reports[::2], max(reports, key=lambda each: each[1])})
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


Settings = Mapping[str, Any]


class FixedSchedule(Scheduler):
    """Lets each trial save, and go on from that with other settings, once a time is reached.

    Args:
        changes: ``time`` of the weights and ``settings`` of each change; the first one is at 0.

    Attributes:
        changes: pairs of time and settings.

    Raises:
        ValueError: it is no such list, or times do not rise.
    """

    def __init__(self, changes: Sequence[Mapping[str, Any]]) -> None:
        self.changes = [_pair(each) for each in changes]
        times = [time for time, _ in self.changes]
        if times[:1] != [0] or times != sorted(times):
            raise ValueError(f"times of changes are {times}, expected rising ones from 0 on")
        # Trial -> index of its present settings.
        self._places: dict[int, int] = {}

    def report(self, trial: int, time: float, score: float | None, **others: Any) -> Decisions:
        """Returns the newest change that is due."""
        due = sum(time >= at for at, _ in self.changes) - 1
        if due <= self._places.get(trial, 0):
            return {trial: Decision()}
        return {trial: Decision(load=Load(trial, self.changes[due][1]))}

    def on_load(self, trial: int, settings: Settings | None) -> None:
        """Records a change that was carried out; one that was not is due again."""
        if settings is not None:
            known = [index for index, (_, each) in enumerate(self.changes) if each == settings]
            self._places[trial] = max(known)

    def state(self) -> dict[str, Any]:
        """Returns the present place of each trial."""
        return {"places": {str(trial): place for trial, place in self._places.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores the places of the state."""
        self._places = {int(trial): place for trial, place in state["places"].items()}


def _pair(change: Any) -> tuple[float, Settings]:
    if (
        isinstance(change, Mapping)
        and change.keys() == {"time", "settings"}
        and isinstance(change["time"], int | float)
        and isinstance(change["settings"], Mapping)
    ):
        return float(change["time"]), dict(change["settings"])
    raise ValueError(f"a change is {quote(change)}, expected time and settings")
