"""From a tune file to the result: checks all settings, begins a tuning, or goes on with one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from operator import methodcaller
from pathlib import Path
from typing import Any

from session.config import Config
from session.config.merge import paths, quote
from session.config.named_code import Overrides, as_overrides
from session.errors import ConfigError, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.launcher import free_ports, resolve_host
from surreal_like.addons.tuning.exploit_files import follow_config
from surreal_like.addons.tuning.result import TuningResult
from surreal_like.addons.tuning.scheduler import Scheduler
from surreal_like.addons.tuning.slots import Machine, find_slots
from surreal_like.addons.tuning.space_and_mutation import Options, Settings, settings_text
from surreal_like.addons.tuning.state import OVER, Trial, restore_trials
from surreal_like.addons.tuning.trial import (
    MODULES,
    SEED,
    TUNE_FILE,
    new_request,
    read_tuning,
    seed_of,
    trial_name,
)
from surreal_like.addons.tuning.tune_defaults import TPE
from surreal_like.addons.tuning.tune_file import (
    TuneFile,
    check_experiment,
    has_goal,
    read_tune_file,
)
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.addons.tuning.worker_connections import Host
from surreal_like.experiment.resolve_process import Resolved
from surreal_like.experiment.user_code import keep_file
from surreal_like.run.folder import TUNING, held, newest_path
from surreal_like.run.observer import Interrupts, RunObserver, pass_report
from surreal_like.run.resume import changes, check_allowed
from surreal_like.run.start import fork_servers, try_forked

# These may change when a tuning is resumed.
_MAY_CHANGE = (
    *("tune.slots", "tune.trial_cores", "tune.trial_gpus", "tune.trial_memory_bytes"),
    *("tune.max_resident", "tune.max_failures", "tune.fail_fast", "tune.stop", "tune.trials"),
    *("tune.stop_at_goal", "tune.seconds"),
)
# These never: scores and times of its trials are in them.
_FIXED = ("tune.metric", "tune.mode", "tune.time", "tune.replay")


def tune(
    file: str | Path | None = None,
    *,
    overrides: Overrides = (),
    folder: str | Path | None = None,
    resume: bool = False,
    retry_errors: bool = False,
    allow_change: Iterable[str] = (),
    watch: RunObserver | None = None,
) -> TuningResult:
    """Runs a tuning until all trials have ended, and returns it.

    Args:
        file: tune file, or the name of a shipped one; None: with ``resume``, as the tuning has it.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        folder: folder of the tuning; None: ``runs/<name>-<date>-<time>``.
        resume: True to go on with the tuning in the folder, or the newest one of this file.
        retry_errors: True to go on also with the trials that were given up, with ``resume``.
        allow_change: keys of the file in which a resumed tuning may differ.
        watch: observer of the tuning.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder is in use, not empty, or no tuning to resume; or that has other
            settings.
    """
    given, path = read_given(
        file,
        as_overrides(overrides),
        None if folder is None else Path(folder),
        resume=resume,
        retry_errors=retry_errors,
        allow_change=allow_change,
    )
    return run_tuning(given, folder=path, resume=resume, retry_errors=retry_errors, watch=watch)


def run_tuning(
    file: TuneFile,
    *,
    folder: Path | None = None,
    resume: bool = False,
    retry_errors: bool = False,
    watch: RunObserver | None = None,
    host: str | None = None,
) -> TuningResult:
    """Runs a tuning until all trials have ended, and returns it.

    Args:
        file: file of the tuning.
        folder: folder of the tuning; None: ``runs/<name>-<date>-<time>``.
        resume: True to go on with the tuning in the folder.
        retry_errors: True to go on also with the trials that were given up, with ``resume``.
        watch: observer of the tuning.
        host: address of this machine, where other machines join; None: none can.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder is in use, or not empty; or ``watch`` is none.
    """
    _check_host(file, host)
    watch = watch or RunObserver()
    _check_watch(watch)
    with ExitStack() as stack:
        stack.callback(pass_report, watch, lambda each: each.end())
        pass_report(watch, lambda each: each.prepare(folder or Path(file.name)))
        interrupts = stack.enter_context(Interrupts())
        servers = fork_servers(str(file.experiment.get("algorithm", "")), *MODULES)
        stack.callback(servers.close)
        # Imported while the fork servers import torch: TensorBoard's part of it takes 0.1 s.
        from surreal_like.addons.tuning.tuner import Tuner

        resolved: dict[str, Config] = {}
        tries = partial(try_forked, servers, seconds=SECONDS)
        config = resolve_all(file, tries, folder, resolved)
        slots = find_slots(file.tune, config, Machine.here())
        own = stack.enter_context(held(folder, name=file.name, resume=resume))
        keep_file(str(file.tune.pbt.explore), own)
        again = partial(try_forked, servers, known=config)
        scheduler = file.scheduler(make_explore_check(file, again))
        state = read_tuning(own.path) if resume else {"trials": []}
        skipped, seconds = state.get("skipped") or 0, float(state.get("seconds") or 0.0)
        trials = restore_trials(state, retry_errors=retry_errors)
        if resume:
            _check_unended(trials, seconds, own, file)
            _continue(trials, scheduler, state.get("scheduler") or {}, own, file)
        for number, settings in enumerate(file.settings()[len(trials) :], len(trials)):
            trials.append(Trial(trial_name(number), settings))
        tuning = Tuning(
            trials,
            scheduler,
            slots=slots.num,
            deadlines=file.deadlines,
            max_resident=slots.max_resident,
            mode=file.tune.mode,
            max_failures=file.tune.max_failures,
            fail_fast=file.tune.fail_fast,
        )
        tuning.skipped = skipped
        interrupts.only_count()
        for note in (*notes(file, config), *filter(None, [slots.note])):
            pass_report(watch, methodcaller("on_message", note))
        resolve = partial(resolve_trial, file, again, resolved)
        tuner = Tuner(
            *(file, own, tuning, servers, watch, slots),
            seconds_before=seconds,
            host=None if host is None else Host(host, resolve),
        )
        stack.callback(tuner.close)
        return TuningResult(own.path, tuner.run(interrupts))


def _check_watch(watch: object) -> None:
    if not isinstance(watch, RunObserver):
        raise UsageError(
            f"watch is {watch!r}, expected an object of a class that extends RunObserver"
        )


def _check_host(file: TuneFile, host: str | None) -> None:
    """Rejects a host that is not this machine, and a tuning without a slot on any machine."""
    if host is not None:
        free_ports(["any"], resolve_host(host))
    elif file.tune.slots < 0:
        raise UsageError("tune.slots=-1 has no slot here: give --host, so that machines can join")


def _continue(
    trials: Sequence[Trial],
    scheduler: Scheduler,
    state: Mapping[str, Any],
    folder: RunFolder,
    file: TuneFile,
) -> None:
    """Restores a scheduler, and what of the trials is not in the state of the tuning.

    Args:
        trials: trials of the state of the tuning.
        scheduler: new.
        state: state of the scheduler before; it is left out if its settings have changed.
        folder: folder of the tuning.
        file: file of the tuning, from now on.
    """
    same, planned = file.rules == read_tune_file(folder.path / TUNE_FILE).rules, file.settings()
    if same:
        try:
            scheduler.restore(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ConfigError(
                f"{folder.path / TUNING} is damaged: the state of its scheduler does not fit "
                f"({error!r})"
            ) from None
    for number, trial in enumerate(trials):
        run = RunFolder(folder.path / trial.name)
        if not run.config.is_file() and planned[number]:
            # It has not begun: if the space has changed, that is its space, too.
            trial.settings = planned[number]
        newer = follow_config(trial, run)
        if newer or not same:
            scheduler.on_load(number, trial.settings)
        if trial.state in OVER and not same:
            scheduler.on_end(number)


def _check_unended(
    trials: Sequence[Trial], seconds: float, folder: RunFolder, file: TuneFile
) -> None:
    """Rejects resuming a tuning whose own budget or goal has ended it: it would end again at once.

    Raises:
        UsageError: the message names the setting.
    """
    if all(each.state in OVER for each in trials):
        return
    if file.tune.seconds is not None and seconds >= file.tune.seconds:
        raise UsageError(
            f"tuning {folder} has used its budget: tune.seconds is {file.tune.seconds:g}, and it "
            f"ran for {seconds:.0f} s; set it higher to go on"
        )
    for trial in trials if file.tune.stop_at_goal else ():
        if (RunFolder(folder.path / trial.name).read_result() or {}).get("goal_met") is True:
            raise UsageError(
                f"{trial.name} has met its goal, at which tuning {folder} ends: to go on, set "
                "tune.stop_at_goal=false"
            )


def read_given(
    file: str | Path | None,
    words: Sequence[str],
    folder: Path | None,
    *,
    resume: bool,
    retry_errors: bool,
    allow_change: Iterable[str],
) -> tuple[TuneFile, Path | None]:
    """Reads the tune file of a new tuning, or that of the one to go on with.

    Args:
        file: YAML or JSON; None with ``resume``: that of the tuning.
        words: ``section.key=value``, which replace settings of the file.
        folder: folder of the tuning; None with ``resume``: the newest one of the file, or of all.
        resume: True to go on with the tuning in the folder.
        retry_errors: True to go on also with the trials that were given up, with ``resume``.
        allow_change: dotted keys that may differ with ``resume``; a section allows all below it.

    Returns:
        The tune file, and the folder: None for a new one.

    Raises:
        ConfigError: a key or a value is wrong.
        UsageError: there is no file, or no tuning to resume; or it has other settings.
    """
    allowed = list(allow_change)
    for option, given in (("--retry-errors", retry_errors), ("--allow-change", allowed)):
        if given and not resume:
            raise UsageError(f"{option} belongs to --resume")
    if not resume:
        if file is None:
            raise UsageError("give one tune file, as in configs/cartpole_asha.yaml")
        return read_tune_file(file, words), folder
    path = folder or newest_path(Path(file).stem if file is not None else None, TUNING)
    source = path / TUNE_FILE
    if not os.path.isfile(source):
        raise UsageError(f"{path} is no tuning to resume: it has no {TUNE_FILE}")
    found = read_tune_file(file if file is not None else source, words)
    _check_resumed(read_tune_file(source), found, path, allowed)
    return found, path


def _check_resumed(before: TuneFile, now: TuneFile, path: Path, allowed: Sequence[str]) -> None:
    """Rejects resuming a tuning with other settings.

    Raises:
        UsageError: the message lists the keys that differ.
        ConfigError: it has fewer trials than before.
    """
    old, new = before.to_config(), now.to_config()
    found = {
        key: change
        for key, change in changes(old, new, {**old, **new}).items()
        if not key.startswith(_MAY_CHANGE)
    }
    if fixed := [key for key in found if key.startswith(_FIXED)]:
        raise UsageError(
            f"{fixed[0]} was {found[fixed[0]][0]}, is {found[fixed[0]][1]}: what the trials of "
            f"{path} have reported would mean something else; begin a new tuning"
        )
    known = [*paths(old), *paths(new)]
    check_allowed(found, allowed, known, f"tuning {path} cannot go on with other settings")
    other = {*before.entries} ^ {*now.entries}
    if any(key.startswith("space.") for key in found) and (
        now.tune.search == TPE or (now.tune.scheduler == "pbt" and other)
    ):
        raise UsageError(
            f"the space of {path} is changed, but settings of its trials are made from those of "
            "earlier ones; begin a new tuning"
        )
    if now.tune.trials < before.tune.trials:
        raise ConfigError(
            f"tune.trials is {now.tune.trials}, expected {before.tune.trials} or more: {path} has "
            "so many; for fewer, begin a new tuning without --resume"
        )


# Settings that are resolved before the start; a trial resolves its own again when it begins.
_MOST = 100
# Time for that; those that are left over are left to their trials [s].
SECONDS = 20.0
# Schedulers that compare trials while they learn.
_COMPARES = ("asha", "median", "pbt")

# Resolves experiments in another process; the last ones may be left out.
TryAll = Callable[[Sequence[Config]], list[Resolved]]


def resolve_all(
    file: TuneFile,
    try_all: TryAll,
    folder: Path | None = None,
    resolved: dict[str, Config] | None = None,
) -> Config:
    """Resolves the experiment, each value of the space, and the settings of each trial.

    Args:
        file: file of the tuning.
        try_all: function that resolves experiments.
        folder: folder of the tuning; trials that have begun in it have their settings already.
        resolved: gets the configs, by their settings as JSON.

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
    if resolved is not None:
        resolved[json.dumps({})] = base
    for (name, settings), result in zip(candidates, found, strict=True):
        if isinstance(result, SurrealError) and not _runs_beside_others(file, settings, try_all):
            raise ConfigError(f"{name}, which cannot run: {result}")
        if resolved is not None and isinstance(result, Config):
            resolved[json.dumps(settings)] = result
    return base


def resolve_trial(
    file: TuneFile,
    try_all: TryAll,
    resolved: Mapping[str, Config],
    number: int,
    settings: Settings,
) -> Config:
    """Returns the resolved config of a new trial.

    Args:
        file: file of the tuning.
        try_all: function that resolves experiments.
        resolved: configs that are known, as :func:`resolve_all` gives them.
        number: number of the trial.
        settings: settings of the trial.

    Raises:
        SurrealError: it cannot be resolved.
    """
    known = resolved.get(json.dumps(settings))
    found = known.copy() if known is not None else _resolve(file, [settings], try_all)[0]
    if isinstance(found, SurrealError):
        raise found
    assert found is not None  # only with a time limit one is left out
    found.session_config.seed = settings.get(SEED, seed_of(file, number))
    return found


def notes(file: TuneFile, config: Config) -> list[str]:
    """Returns what a user may not have meant, one line each.

    Args:
        file: file of the tuning.
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


def make_explore_check(file: TuneFile, try_all: TryAll) -> Callable[[Settings], str]:
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
            yield f"space.{key} has {quote(value)}", {key: value}


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
