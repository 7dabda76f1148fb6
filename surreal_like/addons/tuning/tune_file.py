"""A tune file: an experiment, the space of its settings, and how to tune them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session.config.config import Config, apply_overrides, keys_of, override
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.file import parse_yaml
from session.config.merge import leaves, quote
from session.config.named_code import folders_of, in_snapshot, split_place
from session.config.sections import MAPPINGS, TEXTS
from session.config.session_defaults import BUDGETS
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.folder import RunFolder
from session.launchers.registry import list_attached
from session.launchers.silence_and_restarts import Deadlines
from surreal_like.addons.tuning.optuna_search import check_installed
from surreal_like.addons.tuning.pbt import Explore, PopulationBased
from surreal_like.addons.tuning.result import check_metric
from surreal_like.addons.tuning.scheduler import (
    Fifo,
    FixedSchedule,
    MedianStopping,
    Scheduler,
    SuccessiveHalving,
)
from surreal_like.addons.tuning.space_and_mutation import KEYS as ENTRY_KEYS
from surreal_like.addons.tuning.space_and_mutation import Settings, Space
from surreal_like.addons.tuning.tune_defaults import TPE, TUNE_CONFIG
from surreal_like.data.policy_names import named_policies
from surreal_like.experiment.shipped import find_experiment
from surreal_like.run.folder import TUNING

# In the folder of a tuning: its experiment, for runs with the settings of a trial.
EXPERIMENT_FILE = "experiment.yaml"
_EXPERIMENT = (*TEXTS, *MAPPINGS)
_KEYS = ("experiment", *_EXPERIMENT, "space", "tune")
_GOALS = ("eval_return", "eval_returns", "metric")
_SPACE = "space."
_MOST_TRIALS = 10_000
# Of a trial of an asynchronous population.
_REPORTS_PER_COMPARISON = 10


@dataclass(frozen=True, slots=True)
class TuneFile:
    """A tune file with its experiment and all defaults.

    Args:
        name: name of the file, without its ending.
        experiment: the user's settings of it, without defaults.
        entries: the section ``space``.
        tune: the section ``tune``.
        source: path of the experiment file; empty: the experiment is in the tune file.
        changes: sections that stand in the tune file itself, or were replaced.
        explore: the function that ``tune.pbt.explore`` names.
    """

    name: str
    experiment: Config
    entries: Mapping[str, Any]
    tune: Config
    source: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    explore: Explore | None = None

    def train_words(self, settings: Mapping[str, Any], folder: Path) -> list[str]:
        """Returns the words after ``surreal-like train`` that train once with these settings.

        Args:
            settings: settings of a trial.
            folder: folder of the tuning, whose experiment is used if the tune file names none.
        """
        words = [self.source or str(folder / EXPERIMENT_FILE)]
        changes = self.changes if self.source else {}
        if "algorithm" in changes:
            words += ["--algorithm", str(changes["algorithm"])]
        flat = {**leaves(by_words(changes)), **settings}
        if not any((self.experiment.get("session_config") or {}).get("stop", {}).values()):
            # Without a goal or budget of the experiment, training would never end.
            flat["session_config.stop"] = {k: v for k, v in self.tune.stop.items() if v is not None}
        return words + [override(key, value) for key, value in flat.items()]

    @property
    def space(self) -> Space:
        """The space.

        Raises:
            ConfigError: it is wrong.
        """
        return Space.of(self.entries)

    def to_config(self) -> Config:
        """Returns the content of ``tune.yaml`` in the folder of the tuning."""
        return self.experiment | {"space": dict(self.entries), "tune": self.tune}

    @property
    def report_every(self) -> float:
        """Time between two reports of a trial, 0: it never reports."""
        tune = self.tune
        section = tune.get(tune.scheduler, {})
        interval = section.get("perturbation_interval", section.get("grace_period", 0.0))
        if tune.scheduler == "pbt" and not tune.pbt.synch:
            # A report a little before the interval has passed must not cost a whole one.
            interval /= _REPORTS_PER_COMPARISON
        return float(tune.report_every or interval)

    @property
    def rules(self) -> tuple[Any, ...]:
        """Settings without which the state of a scheduler has no meaning."""
        name = self.tune.scheduler
        return name, self.tune.get(name), self.entries

    @property
    def budget(self) -> float | None:
        """Budget of a trial in the unit of the tuning."""
        budget: float | None = self.tune.stop[self.tune.time]
        return budget

    @property
    def deadlines(self) -> Deadlines:
        """Deadlines of the process of a trial: those of a component of its run."""
        user = self.experiment.get("session_config") or {}
        beat, launcher = (
            {**BASE_CONFIG.session_config[name], **(user.get(name) or {})}
            for name in ("heartbeat", "launcher")
        )
        return Deadlines(beat["timeout"], launcher["grace_seconds"])

    def settings(self) -> list[Settings]:
        """Returns the settings of all trials, in the order of their numbers.

        With ``search: tpe`` they are empty: each is proposed when its trial begins.

        Raises:
            ConfigError: there are too many.
        """
        if self.tune.scheduler == "replay":
            return [dict(self._replay().changes[0][1])]
        space, num = self.space, int(self.tune.trials)
        points = len(space.points())
        if num * points > _MOST_TRIALS:
            raise ConfigError(
                f"tune.trials {num} times {points} points of the grid are {num * points} trials, "
                f"expected at most {_MOST_TRIALS}"
            )
        if self.tune.search == TPE:
            return [{} for _ in range(num)]
        return space.trials(num, int(self.tune.seed))

    def scheduler(self, check: Callable[[Settings], str] | None = None) -> Scheduler:
        """Makes the scheduler.

        Args:
            check: check of explored settings, as in :class:`PopulationBased`.

        Raises:
            ConfigError: its section is wrong.
        """
        tune = self.tune
        section = dict(tune.get(tune.scheduler, {}))
        if tune.scheduler == "replay":
            return self._replay()
        try:
            if tune.scheduler == "asha":
                section["max_time"] = section["max_time"] or self.budget or 0.0
                return SuccessiveHalving(**section, mode=tune.mode)
            if tune.scheduler == "median":
                return MedianStopping(**section, mode=tune.mode)
            if tune.scheduler == "pbt":
                section |= {"explore": self.explore, "check": check}
                return PopulationBased(
                    self.space, self.settings(), seed=int(tune.seed), mode=tune.mode, **section
                )
        except ValueError as error:
            raise ConfigError(f"tune.{tune.scheduler}: {error}") from None
        return Fifo()

    def _replay(self) -> FixedSchedule:
        try:
            return FixedSchedule(self.tune.replay.changes)
        except ValueError as error:
            raise ConfigError(f"tune.replay: {error}") from None


def by_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of an experiment that ``key=value`` sets: all but the algorithm."""
    return {key: value for key, value in given.items() if key in _EXPERIMENT and key != "algorithm"}


def read_tune_file(path: str | Path, overrides: Sequence[str] = ()) -> TuneFile:
    """Reads a tune file, and the experiment file that it names.

    Args:
        path: YAML or JSON, or the name of a shipped one.
        overrides: ``section.key=value``, of the experiment, of ``tune`` or of ``space``.

    Raises:
        ConfigError: a key or a value is wrong; the message names it.
    """
    path = find_experiment(path)
    given = Config.load_file(str(path))
    if "tune" not in given and os.path.isfile(Path(path).with_name(TUNING)):
        raise ConfigError(
            f"{path} is not the file of a tuning: it has no tune; it was emptied or cut short: put "
            "a copy of it back"
        )
    given = _with_words(given, overrides)
    for key in given:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS, lead="; ")
            raise ConfigError(f"{path}: unknown key {key}{hint or f'; it has {_KEYS}'}")
    entries, tune = (given.pop(key, Config()) for key in ("space", "tune"))
    for name, section in (("space", entries), ("tune", tune)):
        if not isinstance(section, Config):
            raise ConfigError(f"{path}: {name} is {quote(section)}, expected a mapping")
    source, changes = given.pop("experiment", None), given.to_dict()
    if source is not None:
        source = _experiment_file(path, source)
        given = Config(_over(_experiment(path, source), given))
    tune = _with_defaults(tune)
    explore = _explore(tune.pbt.explore, path.parent)
    name, own = path.stem, entries.to_dict()
    file = TuneFile(name, given, own, tune, str(source or ""), changes, explore)
    _check(file)
    return file


def _with_words(given: Config, words: Sequence[str]) -> Config:
    """Sets ``section.key=value`` words in a tune file; below ``space`` a key is a dotted one."""
    for word in words:
        place, equals, value = word.partition("=")
        key = place.strip().removeprefix(_SPACE)
        if not equals or key == place.strip() or not all(key.split(".")):
            apply_overrides(given, [word])
            continue
        parent, _, kind = key.rpartition(".")
        entries, where = given.setdefault("space", {}), "space"
        if parent and kind in ENTRY_KEYS and isinstance(entries, Config):
            entries, where, key = entries.setdefault(parent, {}), f"{_SPACE}{parent}", kind
        if not isinstance(entries, Config):
            raise ConfigError(f"override {word!r}: {where} is {quote(entries)}, no mapping")
        entries[key] = parse_yaml(value, f"override {word!r}")
    return given


def _experiment_file(path: Path, source: Any) -> Path:
    """Returns the experiment file: a shipped one, or a path relative to the tune file."""
    if not isinstance(source, str):
        raise ConfigError(f"{path}: experiment is {quote(source)}, expected a path")
    return find_experiment(path.parent / source if Path(source).suffix else source)


def _experiment(path: Path, source: Path) -> Config:
    """Reads the experiment file of a tune file."""
    experiment = Config.load_file(str(source))
    if wrong := [key for key in ("space", "tune") if key in experiment]:
        raise ConfigError(f"{path}: experiment {source} has {wrong[0]}, so it is a tuning itself")
    return experiment


def _explore(place: Any, folder: Path) -> Explore | None:
    """Loads the function of ``tune.pbt.explore``, from the ``code/`` of a tuning if it is there."""
    if place is None:
        return None
    if not isinstance(place, str):
        raise ConfigError(f"tune.pbt.explore is {quote(place)}, expected file.py:function")
    # Not at the top: it imports torch, which tunings without such a function do not need.
    from session.config.named_code import find_function

    sys.path.extend(folders_of(iter([split_place(place)[0]]), []))
    return find_function(in_snapshot(place, RunFolder(folder)), "tune.pbt.explore", "settings")


def _over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of ``base``, replaced by those of ``top``."""
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _over(merged[key], value) if both else value
    return merged


def _with_defaults(given: Mapping[str, Any]) -> Config:
    whole = Config({"tune": given}).extend(TUNE_CONFIG, strict=True)
    check_values(whole, keys_of(TUNE_CONFIG))
    tune: Config = whole.tune
    if tune.launcher not in list_attached():
        raise ConfigError(
            f"tune.launcher is {tune.launcher!r}, expected {' or '.join(list_attached())}; trials "
            "run on this machine"
        )
    return tune


def _check(file: TuneFile) -> None:
    """Rejects what is wrong without knowing the whole experiment."""
    file.settings()
    tune = file.tune
    if tune.scheduler == "asha" and not (tune.asha.max_time or file.budget):
        raise ConfigError(
            f"tune.scheduler is asha, which needs tune.asha.max_time or tune.stop.{tune.time}"
        )
    if tune.search == TPE:
        _check_search(file)
    if tune.scheduler == "pbt":
        _check_population(file)
    file.scheduler()


def _check_search(file: TuneFile) -> None:
    if grids := [key for key, each in file.space.dimensions.items() if each.kind == "grid"]:
        raise ConfigError(f"tune.search is tpe, but space.{grids[0]} is a grid; use choice")
    if file.tune.scheduler == "pbt":
        raise ConfigError("tune.search is tpe, which does not go with tune.scheduler: pbt")
    if not file.entries:
        raise ConfigError("tune.search is tpe, but space is empty")
    check_installed()


def _check_population(file: TuneFile) -> None:
    interval, budget = file.tune.pbt.perturbation_interval, file.budget
    if not interval:
        raise ConfigError(
            "tune.scheduler is pbt, which needs tune.pbt.perturbation_interval, the "
            f"{file.tune.time} between two comparisons of a trial"
        )
    if budget is not None and interval > budget:
        raise ConfigError(
            f"tune.pbt.perturbation_interval {interval:g} is above tune.stop.{file.tune.time} "
            f"{budget:g}: no trial would ever be compared"
        )
    if len(file.settings()) < 2:
        raise ConfigError("tune.scheduler is pbt, which needs 2 trials or more: see tune.trials")
    if not file.space.mutable:
        raise ConfigError("tune.scheduler is pbt, but no key of space can be changed")


def check_experiment(file: TuneFile, config: Config) -> None:
    """Rejects a tuning that does not fit its experiment.

    Args:
        file: file of the tuning.
        config: the resolved experiment, with the budgets of the tuning.

    Raises:
        ConfigError: the message names the key.
    """
    file.space.check(config)
    check_metric(str(file.tune.metric), config)
    if file.tune.scheduler == "pbt" and (names := named_policies(config)):
        raise ConfigError(
            f"tune.scheduler is pbt, but the experiment names its policies ({', '.join(names)}), "
            "whose weights a trial does not take over: use fifo, asha or median"
        )
    stop = config.session_config.stop
    if not any(stop[name] is not None for name in BUDGETS) and not has_goal(config):
        raise ConfigError("a trial would never end: set tune.stop.env_steps, or a goal")
    if file.tune.stop_at_goal and not has_goal(config):
        raise ConfigError(
            "tune.stop_at_goal is true, but the experiment has no goal: set "
            "session_config.stop.eval_return, or stop_at_goal to false"
        )


def has_goal(config: Config) -> bool:
    """Returns True if the runs of a resolved experiment have a goal."""
    stop = config.session_config.stop
    return any(stop.get(name) not in (None, {}) for name in _GOALS)
