"""Resolves the settings that trials can get, before a trial gets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from session.config import Config
from session.config.merge import shown
from session.errors import ConfigError, SurrealError
from session.folder import RunFolder
from surreal_like.experiment.resolve import Resolved
from surreal_like.tuning.dimension import Options
from surreal_like.tuning.setting_text import settings_text
from surreal_like.tuning.space import Settings
from surreal_like.tuning.trial import new_request, trial_name
from surreal_like.tuning.tune_defaults import TPE
from surreal_like.tuning.tune_file import TuneFile, check_experiment, has_goal

# Settings that are resolved before the start; a trial resolves its own again when it begins.
_MOST = 100
# Time for that; those that are left over are left to their trials [s].
SECONDS = 20.0
# Schedulers that compare trials while they learn.
_COMPARES = ("asha", "median", "pbt")

# Resolves experiments in another process; the last ones may be left out.
TryAll = Callable[[Sequence[Config]], list[Resolved]]


def resolve_all(file: TuneFile, try_all: TryAll, folder: Path | None = None) -> Config:
    """Resolves the experiment, each value of the space, and the settings of each trial.

    Args:
        file: of the tuning.
        try_all: resolves experiments.
        folder: of the tuning; trials that have begun in it have their settings already.

    Returns:
        The resolved experiment.

    Raises:
        SurrealError: the experiment cannot be resolved, or a trial could not run; names the value.
    """
    values, trials = _values(file), _trials(file, folder)
    candidates = list(islice((*values, *trials), _MOST))
    base, *found = _resolve(file, [{}, *(settings for _, settings in candidates)], try_all)
    if isinstance(base, SurrealError):
        raise base
    assert base is not None  # the first one is never left out
    check_experiment(file, base)
    for (name, settings), result in zip(candidates, found, strict=True):
        if isinstance(result, SurrealError) and not _runs_beside_others(file, settings, try_all):
            raise ConfigError(f"{name}, which cannot run: {result}")
    return base


def notes(file: TuneFile, config: Config) -> list[str]:
    """Returns what a user may not have meant, one line each.

    Args:
        file: of the tuning.
        config: the resolved experiment.
    """
    found, tune = [], file.tune
    first, num = int(config.session_config.seed), len(file.settings())
    if not file.entries and num > 1:
        found.append(
            f"space is empty: {num} trials have equal settings, and differ by their seeds, "
            f"{first} to {first + num - 1}"
        )
    if tune.scheduler in _COMPARES and has_goal(config) and not tune.stop_at_goal:
        own = config.session_config.stop.eval_return is not None
        found.append(
            f"a trial ends when it meets the goal of the experiment, and {tune.scheduler} compares "
            "it with its score of then: leave the goal out with session_config.stop"
            f"{'.eval_return=null' if own else '={}'}, or set tune.stop_at_goal=true"
        )
    return found


def explored_check(file: TuneFile, try_all: TryAll) -> Callable[[Settings], str]:
    """Returns a function that gives the reason for which no trial can run with settings, or ""."""

    def check(settings: Settings) -> str:
        try:
            [result] = _resolve(file, [settings], try_all)
        except SurrealError as error:
            result = error
        return str(result) if isinstance(result, SurrealError) else ""

    return check


def _resolve(
    file: TuneFile, every: Sequence[Mapping[str, object]], try_all: TryAll
) -> list[Resolved | None]:
    """Returns the config of a trial with each of these settings, or its error; None: left out."""
    read = [_read(file, settings) for settings in every]
    answers = iter(try_all([each for each in read if isinstance(each, Config)]))
    return [next(answers, None) if isinstance(each, Config) else each for each in read]


def _read(file: TuneFile, settings: Mapping[str, object]) -> Resolved:
    try:
        return new_request(file, settings, 0).read_start()
    except SurrealError as error:
        return error


def _values(file: TuneFile) -> Iterator[tuple[str, Settings]]:
    """Yields each element of a list, and the ends of intervals where trials can come to them."""
    reaches_ends = file.tune.search == TPE or file.tune.scheduler == "pbt"
    for key, dimension in file.space.dimensions.items():
        if isinstance(dimension, Options):
            values = dimension.values
        else:
            values = (dimension.low, dimension.highest) if reaches_ends else ()
        for value in values:
            yield f"space.{key} has {shown(value)}", {key: value}


def _trials(file: TuneFile, folder: Path | None) -> Iterator[tuple[str, Settings]]:
    """Yields the settings of each trial; those that an earlier one has are left out."""
    seen = {json.dumps({})}
    for number, settings in enumerate(file.settings()):
        text = json.dumps(settings)
        name = trial_name(number)
        begun = folder is not None and RunFolder(folder / name).config.is_file()
        if not begun and text not in seen:
            yield f"{name} would have {settings_text(settings)}", settings
        seen.add(text)


def _runs_beside_others(file: TuneFile, settings: Settings, try_all: TryAll) -> bool:
    """Returns True if a value that cannot run alone runs beside other values of the space."""
    others = file.space.trials(1, int(file.tune.seed))[0]
    if len(settings) >= len(others):
        return False
    [result] = _resolve(file, [others | settings], try_all)
    return isinstance(result, Config)
