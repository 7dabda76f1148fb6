"""Compares runs: groups the seeds of one experiment and aggregates their curves."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from session.config.merge import leaves
from session.errors import UsageError
from session.folder import RunFolder
from session.show.progress import Curve
from surreal_like.addons.analysis.statistics import iqm, stratified_interval

Array = npt.NDArray[np.float64]
Runs = str | Path | Sequence[str | Path]

_DATED = re.compile(r"-\d{8}-\d{6}(-\d+)?(-seed\d+)?$")
_SEED = re.compile(r"seed-?\d+")
_GRID_POINTS = 400
_SHOWN_SETTINGS = 3
_DEFAULTS = leaves(
    {
        "learner_config": BASE_LEARNER_CONFIG,
        "env_config": BASE_ENV_CONFIG,
        "session_config": BASE_SESSION_CONFIG,
    }
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs whose configs differ only in the seed.

    Args:
        label: name that distinguishes it from the other experiments.
        runs: the folders, sorted by seed.
        seeds: their seeds, in the same order.
        config: config of the first run.
    """

    label: str
    runs: list[RunFolder]
    seeds: list[int]
    config: Config


@dataclass(frozen=True, slots=True)
class Band:
    """Aggregate of several curves on one grid; arrays ``[points]``.

    Args:
        x: the grid.
        middle, low, high: bounds of the curves at each of their points.
    """

    x: Array
    middle: Array
    low: Array
    high: Array


def run_folders(runs: Runs) -> list[RunFolder]:
    """Returns run folders by their paths.

    Raises:
        UsageError: no run is given, or a folder is none of a run.
    """
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not paths:
        raise UsageError("no run was named: name at least one")
    for path in paths:
        if not os.path.isfile(path / "config.yaml"):
            raise UsageError(f"{path} is not a run folder: it has no config.yaml")
    return [RunFolder(path) for path in paths]


def group(runs: Sequence[RunFolder]) -> list[Experiment]:
    """Groups runs into experiments by their configs without seed, in the order of first mention."""
    found: dict[str, list[tuple[int, RunFolder, Config]]] = {}
    for run in {run.path.resolve(): run for run in runs}.values():
        config = run.read_config()
        seed = int(config.session_config.seed)
        found.setdefault(identity(config), []).append((seed, run, config))
    groups = [sorted(each, key=lambda one: one[0]) for each in found.values()]
    configs = [each[0][2] for each in groups]
    names = [_name([run for _, run, _ in each], each[0][2]) for each in groups]
    return [
        Experiment(text, [run for _, run, _ in each], [seed for seed, _, _ in each], each[0][2])
        for text, each in zip(labels(names, configs), groups, strict=True)
    ]


def check_seeds(label: str, number: int, what: str, least: int) -> None:
    """Checks that an experiment has seeds enough.

    Raises:
        UsageError: it has fewer than so many.
    """
    if number < least:
        raise UsageError(
            f"{label} has {number} seed{'s' if number > 1 else ''}, {what} needs "
            f"{least} or more: name more runs, or train them with --seeds 1..5"
        )


def labels(names: Sequence[str], configs: Sequence[Config]) -> list[str]:
    """Returns the names; equal ones are followed by the settings in which their configs differ."""
    shown = []
    for name, config in zip(names, configs, strict=True):
        alike = [other for text, other in zip(names, configs, strict=True) if text == name]
        shown.append(f"{name} ({_difference(config, alike)})" if len(alike) > 1 else name)
    return shown


def band(curves: Sequence[Curve], held: Sequence[bool], *, interval: bool = False) -> Band | None:
    """Returns mean, minimum and maximum of several curves, interpolated linearly.

    The band begins at the latest first point, and ends with the first curve that ends. A held curve
    continues with its last value instead.

    Args:
        curves: one per run, with points in the order of ``x``.
        held: True for runs that ended because they reached the goal.
        interval: interquartile mean and its 95 % interval instead.

    Returns:
        None if the curves have no common range.
    """
    known = [(curve, stays) for curve, stays in zip(curves, held, strict=True) if curve.x]
    if not known:
        return None
    begin = max(curve.x[0] for curve, _ in known)
    cut = [curve.x[-1] for curve, stays in known if not stays]
    end = min(cut) if cut else max(curve.x[-1] for curve, _ in known)
    if end < begin:
        return None
    grid = np.linspace(begin, end, _GRID_POINTS)
    rows = np.stack([np.interp(grid, curve.x, curve.y) for curve, _ in known])
    if interval:
        ends = np.array([stratified_interval(column[:, None]) for column in rows.T])
        return Band(grid, iqm(rows.T[..., None]), ends[:, 0], ends[:, 1])
    return Band(grid, rows.mean(0), rows.min(0), rows.max(0))


def identity(config: Config, without: Sequence[str] = ()) -> str:
    """Returns a text that is equal for configs that differ only in the seed.

    A setting that a run of an older release lacks counts as its default.

    Args:
        config: config of a run.
        without: dotted keys and sections that may differ, too.
    """
    flat = {**_DEFAULTS, **leaves(_settings(config))}
    kept = {key: value for key, value in flat.items() if not _is_below(key, without)}
    return json.dumps(kept, sort_keys=True, default=str)


def _is_below(key: str, places: Sequence[str]) -> bool:
    return any(f"{key}.".startswith(f"{place}.") for place in places)


def _settings(config: Config) -> dict[str, Any]:
    """Returns what makes an experiment: the config without seed and folder."""
    what = {key: config[key] for key in ("algorithm", "learner_config", "env_config")}
    session = {k: v for k, v in config.session_config.items() if k not in ("seed", "folder")}
    return {**what, "session_config": session}


def _name(runs: list[RunFolder], config: Config) -> str:
    """Returns the common name of the run folders without date and seed, else algorithm and env."""
    names = {_stem(run.path.resolve()) for run in runs}
    if len(names) == 1:
        return names.pop()
    return f"{Path(str(config.algorithm)).name} on {config.env_config.env_name}"


def _stem(path: Path) -> str:
    if _SEED.fullmatch(path.name):
        return _stem(path.parent)
    return _DATED.sub("", path.name)


def _difference(config: Config, alike: Sequence[Config]) -> str:
    """Lists the settings in which an experiment differs from others of its name."""
    flat = [leaves(_settings(each)) for each in alike]
    own = leaves(_settings(config))
    different = [key for key in dict.fromkeys(chain(*flat)) if _differ(key, flat)]
    # Runs of an older release may lack a setting: the least informative difference.
    different.sort(key=lambda key: any(key not in each for each in flat))
    words = [f"{key.rpartition('.')[2]} {own[key]}" for key in different if key in own]
    del words[_SHOWN_SETTINGS:]
    more = len(different) - len(words)
    return ", ".join([*words, *([f"{more} more"] if more else [])])


def _differ(key: str, flat: Sequence[dict[str, Any]]) -> bool:
    return len({json.dumps(each.get(key), default=str) for each in flat}) > 1
