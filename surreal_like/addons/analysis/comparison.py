"""Compares methods by the scores of their runs: a method is one or more tasks with some seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from session.config.file import read_file
from session.did_you_mean import did_you_mean
from session.errors import ConfigError, UsageError
from surreal_like.addons.analysis.learning_curves import GREEDY
from surreal_like.addons.analysis.run_curves import RunCurves, check_metric
from surreal_like.addons.analysis.run_groups import (
    Array,
    Experiment,
    Runs,
    check_seeds,
    group,
    identity,
    labels,
    run_folders,
)
from surreal_like.addons.analysis.statistics import (
    ENOUGH_RUNS,
    iqm,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

_LEAST_SEEDS = 3
THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
# Settings that belong to a task: a method may have others for each.
_OF_TASK = (
    *(f"env_config.{key}" for key in ("env_name", "env_args", "obs_spec", "action_spec")),
    "session_config.stop",
)


@dataclass(frozen=True, slots=True)
class Method:
    """Experiments that differ only in the task.

    Args:
        label: name that distinguishes it from the other methods.
        tasks: names of environments.
        seeds: number of runs per task.
        scores: ``[seeds, tasks]``.
    """

    label: str
    tasks: list[str]
    seeds: int
    scores: Array


def compare(
    runs: Runs, *, metric: str | None = None, normalize: str | Path | None = None
) -> dict[str, Any]:
    """Computes statistics of the last value of a metric, for each method and each pair of them.

    Experiments that differ only in the environment are tasks of one method. Of fewer than 5 seeds
    there are mean and range in place of an interquartile mean and its interval.

    Args:
        runs: a run folder, or several.
        metric: as for :func:`surreal_like.plot`; None: return of greedy evaluations.
        normalize: YAML or JSON file ``task: {low: , high: }``; a score becomes
            (score - low) / (high - low). Needed for an interquartile mean over several tasks.

    Returns:
        ``metric``, ``normalized``, ``methods`` and ``improvement``; all plain values.

    Raises:
        UsageError: a method has fewer than 3 seeds, or not equally many on each task; a run or a
            metric is missing.
        ConfigError: the file is wrong.
    """
    name = metric or GREEDY
    scales = None if normalize is None else _scales(normalize)
    found = _methods(group(run_folders(runs)), name)
    if scales is not None:
        found = [_normalize(method, scales, normalize) for method in found]
    thresholds = _thresholds(found, normalized=scales is not None)
    return {
        "metric": name,
        "normalized": scales is not None,
        "methods": [_statistics(each, thresholds, scales is not None) for each in found],
        "improvement": [
            _improvement(one, other)
            for one, other in combinations(found, 2)
            if one.tasks == other.tasks
        ],
    }


def _methods(experiments: Sequence[Experiment], metric: str) -> list[Method]:
    """Joins experiments that differ only in the task, and reads their scores."""
    joined: dict[tuple[str, int], list[Experiment]] = {}
    for experiment in experiments:
        key, number = _identity(experiment), 0
        # A method has each task once: further experiments of the same task are another method.
        while _task(experiment) in map(_task, joined.get((key, number), ())):
            number += 1
        joined.setdefault((key, number), []).append(experiment)
    curves = {run: RunCurves(run) for each in experiments for run in each.runs}
    check_metric(metric, list(curves.values()))
    groups = [sorted(each, key=_task) for each in joined.values()]
    names = labels([_name(each) for each in groups], [each[0].config for each in groups])
    return [_method(label, each, metric, curves) for label, each in zip(names, groups, strict=True)]


def _identity(experiment: Experiment) -> str:
    """Returns a text that is equal for experiments that differ only in the task."""
    return identity(experiment.config, _OF_TASK)


def _task(experiment: Experiment) -> str:
    return str(experiment.config.env_config.env_name)


def _name(experiments: Sequence[Experiment]) -> str:
    if len(experiments) == 1:
        return experiments[0].label
    return f"{Path(str(experiments[0].config.algorithm)).name} on {len(experiments)} tasks"


def _method(
    label: str, experiments: Sequence[Experiment], metric: str, curves: Mapping[Any, RunCurves]
) -> Method:
    columns = []
    for experiment in experiments:
        check_seeds(experiment.label, len(experiment.seeds), "a comparison", _LEAST_SEEDS)
        columns.append([_last(curves[run], metric) for run in experiment.runs])
    sizes = sorted({len(column) for column in columns})
    if len(sizes) > 1:
        raise UsageError(
            f"{label} has {sizes[0]} to {sizes[-1]} seeds per task, expected equally many: "
            "name as many runs of each task"
        )
    return Method(label, [_task(each) for each in experiments], sizes[0], np.array(columns).T)


def _last(curves: RunCurves, metric: str) -> float:
    points = curves.curve(metric, "env_steps").y
    if not points:
        raise UsageError(f"{curves.folder} has no {metric} yet: leave it out, or wait for one")
    return points[-1]


def _scales(path: str | Path) -> dict[str, tuple[float, float]]:
    """Reads ``task: {low: , high: }``."""
    found = {}
    for task, given in read_file(path).items():
        if not isinstance(given, dict) or set(given) != {"low", "high"}:
            raise ConfigError(f"{path}: {task} is {given}, expected {{low: NUMBER, high: NUMBER}}")
        if not all(isinstance(each, int | float) and isfinite(each) for each in given.values()):
            raise ConfigError(f"{path}: {task} is {given}, expected finite numbers")
        if not given["low"] < given["high"]:
            raise ConfigError(f"{path}: {task} has low {given['low']}, not below {given['high']}")
        found[str(task)] = (float(given["low"]), float(given["high"]))
    return found


def _normalize(
    method: Method, scales: Mapping[str, tuple[float, float]], path: str | Path | None
) -> Method:
    for task in method.tasks:
        if task not in scales:
            hint = did_you_mean(task, scales, otherwise=f"add '{task}: {{low: , high: }}'")
            raise ConfigError(f"{path} has no {task}; {hint}")
    low, high = np.array([scales[task] for task in method.tasks]).T
    # Returns are sums in float32: the last digits would only be noise.
    scores = np.round((method.scores - low) / (high - low), 6)
    return Method(method.label, method.tasks, method.seeds, scores)


def _thresholds(found: Sequence[Method], *, normalized: bool) -> list[float]:
    """Returns the thresholds of profiles; for scores in units of the task its range."""
    if normalized:
        return list(THRESHOLDS)
    every = np.concatenate([method.scores.ravel() for method in found])
    steps: list[float] = np.linspace(every.min(), every.max(), len(THRESHOLDS)).tolist()
    return steps[:-1]


def _statistics(method: Method, thresholds: list[float], normalized: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "label": method.label,
        "tasks": method.tasks,
        "seeds": method.seeds,
        "scores": method.scores.tolist(),
    }
    # Scores of several tasks have no common unit before they are normalized.
    if not normalized and len(method.tasks) > 1:
        return shown
    scores = method.scores
    if method.seeds < ENOUGH_RUNS:
        shown |= {"mean": float(scores.mean()), "range": [float(scores.min()), float(scores.max())]}
    else:
        low, high = stratified_interval(scores)
        shown |= {"iqm": float(iqm(scores)), "interval": [float(low), float(high)]}
    shown |= {
        "profile": {
            "thresholds": thresholds,
            "above": performance_profile(method.scores, thresholds).tolist(),
        },
    }
    return shown | ({"gap": float(optimality_gap(method.scores))} if normalized else {})


def _improvement(one: Method, other: Method) -> dict[str, Any]:
    found = {
        "of": one.label,
        "over": other.label,
        "probability": float(probability_of_improvement(one.scores, other.scores)),
    }
    if min(one.seeds, other.seeds) < ENOUGH_RUNS:
        return found
    low, high = stratified_interval(one.scores, probability_of_improvement, other.scores)
    return {**found, "interval": [float(low), float(high)]}
