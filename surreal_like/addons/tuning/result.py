"""Scores of trials, and the result of a tuning, also as the HParams page of TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config import Config
from session.config.merge import leaves
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.tensorplex.event_files import EventFile
from session.wire.schema import Number
from surreal_like.addons.tuning.space_and_mutation import short_names
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.coordinator.run_stats import RunStats

INTERRUPTED = "interrupted"
_SCORE = Number()
# Names that a message lists.
_NAMES = 20


@dataclass(frozen=True, slots=True)
class TuningResult:
    """A tuning that has ended.

    Args:
        folder: folder of the tuning.
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
        tuning: a tuning that has ended.
        seconds: duration of the tuning, all its parts together.
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


def check_metric(metric: str, config: Config) -> None:
    """Rejects a metric that no line of progress of an experiment has.

    Raises:
        ConfigError: the message names the nearest one.
    """
    if metric.partition(".")[0] in ("metrics", "learn"):
        return
    if metric.startswith(("eval.", "best_eval.")):
        if config.session_config.evaluator.num < 1:
            raise ConfigError(
                f"tune.metric is {metric}, but there is no evaluator: set "
                "session_config.evaluator.num to 1"
            )
        return
    known = leaves(RunStats(config, CountedClock()).line(0, 0, []))
    if metric not in known:
        hint = did_you_mean(metric, known, lead="; ")
        raise ConfigError(f"tune.metric is {metric}: no line of progress has it{hint}")


def number_name(metric: str) -> str:
    """Returns the dotted name of the number of a line of progress that a metric means."""
    return f"{metric}.mean" if metric.startswith("metrics.") else metric


def number_at(line: Mapping[str, Any], metric: str) -> float | None:
    """Returns a number of a line of progress; of the experiment's own metrics the mean.

    Args:
        line: line of progress.
        metric: dotted name; after ``metrics.`` the whole name of one.
    """
    name = number_name(metric)
    section = name.partition(".")[0]
    value: Any = leaves({section: line.get(section)}).get(name)
    # Schedulers add up and average scores: with a larger one they would fail.
    return float(value) if _SCORE.fits(value) else None


def without_score(line: Mapping[str, Any], tune: Mapping[str, Any]) -> str:
    """Explains why a trial with this last line of progress has no score."""
    metric: str = tune["metric"]
    if (value := number_at(line, metric)) is not None:
        return (
            f"has no score: {metric} is {value:.6g} after {_episodes(line)} episodes, "
            f"fewer than tune.min_episodes, {tune['min_episodes']}"
        )
    section = metric.partition(".")[0]
    if not _episodes(line) and section in ("train", "metrics"):
        return "has no score: none of its episodes has ended"
    names = sorted(line.get(section) or {}) if isinstance(line.get(section), Mapping) else []
    return (
        f"has no score: {metric} is no number in its last line of progress, which has under "
        f"{section}: {', '.join(names[:_NAMES]) or 'nothing'}"
    )


def score_of(line: Mapping[str, Any], tune: Mapping[str, Any]) -> float | None:
    """Returns the score that a line of progress shows, None if it shows none.

    Args:
        line: line of progress.
        tune: section ``tune``.
    """
    metric: str = tune["metric"]
    if _episodes(line) < tune["min_episodes"] and metric.partition(".")[0] in ("train", "metrics"):
        return None
    return number_at(line, metric)


def _episodes(line: Mapping[str, Any]) -> int:
    """Returns the number of episodes since the start, or since the newest exploit."""
    since: int | None = line.get("episodes_since_load")
    episodes: int = line.get("episodes", 0)
    return episodes if since is None else since


SCORE = "score"
# Columns of the page: the score, and curves of a trial.
_CURVES = (SCORE, "return/train", "return/greedy")
_WRITER = "tuner"


def write_experiment(tuning: RunFolder, keys: Sequence[str]) -> None:
    """Writes the columns of the page: settings, score, and curves of the return.

    Args:
        tuning: folder of the tuning, which is the log folder of TensorBoard.
        keys: dotted keys of the settings.
    """
    from tensorboard.plugins.hparams import api_pb2, metadata

    from session.tensorplex.sinks.tensorboard import hyperparameter_value

    experiment = api_pb2.Experiment(
        hparam_infos=[
            api_pb2.HParamInfo(name=name, description=key)
            for key, name in short_names(keys).items()
        ],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(group="", tag=tag)) for tag in _CURVES
        ],
        time_created_secs=time.time(),
    )
    value = hyperparameter_value(metadata.EXPERIMENT_TAG, experiment=experiment)
    _write(tuning.tensorboard, 0, [value])


def write_session(tuning: Path, trial: Trial) -> None:
    """Writes a trial that has ended: its settings, its score, and whether it was given up.

    It replaces an earlier session of the trial.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary

    from session.tensorplex.sinks.tensorboard import session_end, session_start

    names, now = short_names(trial.settings), time.time()
    settings = {names[key]: value for key, value in trial.settings.items()}
    values = [
        session_start(trial.name, settings, now),
        session_end(now, failed=trial.state is TrialState.error),
    ]
    if trial.score is not None:
        values.append(Summary.Value(tag=SCORE, simple_value=trial.score))
    _write(RunFolder(tuning / trial.name).tensorboard, int(trial.time), values)


def _write(folder: Path, step: int, values: list[Any]) -> None:
    """Writes values as the tuner's only event file in a folder; a full disk leaves none."""
    for old in folder.glob(f"events.out.tfevents.*.{_WRITER}.*"):
        # A machine may have sent a folder of that name.
        with suppress(OSError):
            old.unlink()
    file = EventFile(folder, time.time(), _WRITER)
    file.add_values(time.time(), step, values)
    file.flush()
