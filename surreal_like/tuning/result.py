"""Result of a tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.folder import RunFolder
from surreal_like.tuning.state import Trial, TrialState
from surreal_like.tuning.tuning import Tuning

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class TuningResult:
    """A tuning that has ended.

    Args:
        folder: of the tuning.
        result: the content of ``result.json``.
    """

    folder: Path
    result: dict[str, Any]

    @property
    def best(self) -> dict[str, Any] | None:
        """The best trial: ``trial``, ``score``, ``settings``, ``path``; None without a score."""
        best: dict[str, Any] | None = self.result["best"]
        return best

    @property
    def trials(self) -> dict[str, dict[str, Any]]:
        """Name of each trial -> its ``state``, ``settings``, ``score`` and counts."""
        trials: dict[str, dict[str, Any]] = self.result["trials"]
        return trials

    @property
    def exit_code(self) -> int:
        """0: complete, with a score; 130: interrupted; else 1."""
        return {"stopped": 0, "interrupted": 130}.get(str(self.result["status"]), 1)


def result_of(path: Path, tuning: Tuning, seconds: float) -> dict[str, Any]:
    """Returns the content of ``result.json``.

    Args:
        path: folder of the tuning.
        tuning: that has ended.
        seconds: duration of this part.
    """
    best = tuning.best
    interrupted = tuning.ending == INTERRUPTED
    scored = best is not None
    complete = scored and (tuning.planned or not tuning.ending)
    status = "interrupted" if interrupted else "stopped" if complete else "failed"
    reason = tuning.ending or ("all trials have ended" if scored else _without_score(tuning))
    if tuning.planned and not scored:
        reason = f"{tuning.ending}; {_without_score(tuning)}"
    return {
        "status": status,
        "reason": reason,
        "best": None
        if best is None
        else {
            "trial": best.name,
            "score": best.score,
            "settings": dict(best.settings),
            "path": best.name,
        },
        "trials": {each.name: _trial_result(path, each) for each in tuning.trials},
        "exploits": sum(each.generation for each in tuning.trials),
        "skipped": tuning.skipped,
        "cpu_seconds": round(sum(each.cpu_seconds for each in tuning.trials), 3),
        "seconds": round(seconds, 3),
    }


def _trial_result(path: Path, trial: Trial) -> dict[str, Any]:
    counts: Mapping[str, Any] = RunFolder(path / trial.name).read_result() or {}
    names = ("env_steps", "iterations", "wall_seconds", "real_seconds")
    return {
        "state": str(trial.state),
        "settings": dict(trial.settings),
        "score": trial.score,
        "best_score": trial.best_score,
        "time": trial.time,
        "generation": trial.generation,
        "parent": trial.parent,
        "failures": trial.failures,
        "reason": trial.reason,
        "cpu_seconds": round(trial.cpu_seconds, 3),
        **{name: counts.get(name) for name in names},
    }


def _without_score(tuning: Tuning) -> str:
    """Explains why no trial has a score."""
    errors = [each for each in tuning.trials if each.state is TrialState.error]
    if not errors:
        return "no trial had a score: too few episodes have ended, or the metric was never a number"
    return f"{len(errors)} of {len(tuning.trials)} trials were given up; the first: " + (
        f"{errors[0].name}: {errors[0].reason}"
    )
