"""From a tune file to the result: begins a tuning, or goes on with one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from session.config import Config
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.launchers.fork_server import ForkServers
from surreal_like.run.folder import held
from surreal_like.run.interrupts import Interrupts
from surreal_like.run.observer import guarded
from surreal_like.run.own_code import keep_file
from surreal_like.run.start import fork_servers, resolve_forked
from surreal_like.tune.exploit import follow_config
from surreal_like.tune.result import TuningResult
from surreal_like.tune.slots import Machine, Slots, find_slots
from surreal_like.tune.state import Trial, restored_trials
from surreal_like.tune.trial import MODULES, TUNE_FILE, new_request, read_state, trial_name
from surreal_like.tune.tune_file import TuneFile, check_experiment, read_tune_file
from surreal_like.tune.tuner import Tuner
from surreal_like.tune.tuning import Tuning
from surreal_like.tune.watch import TuneWatch

# These may change when a tuning is resumed.
_MAY_CHANGE = (
    *("slots", "trial_cores", "trial_memory_bytes", "max_resident"),
    *("max_failures", "fail_fast", "stop", "trials"),
)


def run_tuning(
    file: TuneFile,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    retry_errors: bool = False,
    watch: TuneWatch | None = None,
) -> TuningResult:
    """Runs a tuning until all trials have ended, and returns it.

    Args:
        file: of the tuning.
        folder: of the tuning; None: ``runs/<name>-<date>-<time>``.
        resume: go on with the tuning in the folder.
        retry_errors: with ``resume``, also with the trials that were given up.
        watch: receives reports.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder is in use, or not empty; or ``watch`` is none.
    """
    path = Path(folder) if folder is not None else None
    watch = watch or TuneWatch()
    if not isinstance(watch, TuneWatch):
        raise UsageError(
            f"watch is {watch!r}, expected an object of a class that extends TuneWatch"
        )
    with ExitStack() as stack:
        stack.callback(guarded, watch, lambda each: each.end(), TuneWatch)
        interrupts = stack.enter_context(Interrupts())
        servers = fork_servers(str(file.experiment.get("algorithm", "")), *MODULES)
        stack.callback(servers.close)
        slots = _check(file, servers)
        own = stack.enter_context(held(path, name=file.name, resume=resume))
        keep_file(str(file.tune.pbt.explore), own)
        trials, scheduler, skipped = [], file.scheduler(), 0
        if resume:
            state = read_state(own.path)
            trials = restored_trials(state, retry_errors=retry_errors)
            scheduler.restore(state["scheduler"])
            skipped = state.get("skipped", 0)
            for number, trial in enumerate(trials):
                if follow_config(trial, RunFolder(own.path / trial.name)):
                    scheduler.on_load(number, trial.settings)
        for number, settings in enumerate(file.settings()[len(trials) :], len(trials)):
            trials.append(Trial(trial_name(number), settings))
        tuning = Tuning(
            trials,
            scheduler,
            slots=slots.num,
            max_resident=slots.max_resident,
            mode=file.tune.mode,
            max_failures=file.tune.max_failures,
            fail_fast=file.tune.fail_fast,
        )
        tuning.skipped = skipped
        interrupts.only_count()
        if note := slots.note:
            guarded(watch, lambda each: each.on_message(note), TuneWatch)
        tuner = Tuner(file, own, tuning, servers, watch)
        stack.callback(tuner.close)
        return TuningResult(own.path, tuner.run(interrupts))


def _check(file: TuneFile, servers: ForkServers) -> Slots:
    """Resolves the experiment once, and checks the tuning; returns the slots for it."""
    return slots_of(file, resolve_forked(servers, new_request(file, {}, 0).read_start()))


def slots_of(file: TuneFile, config: Config) -> Slots:
    """Checks a tuning against its resolved experiment; returns the slots for it on this machine.

    Raises:
        ConfigError, UsageError: it does not fit; nothing was started.
    """
    check_experiment(file, config)
    return find_slots(file.tune, config, Machine.here())


def read_given(
    file: str | Path | None,
    words: Sequence[str],
    folder: str | Path | None,
    *,
    resume: bool,
    retry_errors: bool,
) -> TuneFile:
    """Reads the tune file of a new tuning, or that of the one to go on with.

    Args:
        file: YAML or JSON; None with ``resume``.
        words: ``section.key=value``, which replace settings of the file.
        folder: of the tuning.
        resume: go on with the tuning in the folder.
        retry_errors: with ``resume``, also with the trials that were given up.

    Raises:
        ConfigError: a key or a value is wrong.
        UsageError: there is no file, or one beside ``resume``; or the folder has no tuning.
    """
    if retry_errors and not resume:
        raise UsageError("--retry-errors belongs to --resume")
    if not resume:
        if file is None:
            raise UsageError("give one tune file, as in configs/cartpole_asha.yaml")
        return read_tune_file(file, words)
    if file is not None or folder is None:
        raise UsageError(
            "--resume goes on with a tuning as its folder has it: give --folder and no file"
        )
    source = Path(folder) / TUNE_FILE
    if not source.is_file():
        raise UsageError(f"{folder} is no tuning to resume: it has no {TUNE_FILE}")
    found = read_tune_file(source, words)
    _check_resumed(read_tune_file(source), found)
    return found


def _check_resumed(before: TuneFile, now: TuneFile) -> None:
    """Rejects resuming a tuning with other settings.

    Raises:
        UsageError: the message lists the keys that differ.
        ConfigError: it has fewer trials than before.
    """
    names = [key for key in before.tune if before.tune[key] != now.tune[key]]
    wrong = [f"tune.{key}" for key in names if key not in _MAY_CHANGE]
    wrong += ["space"] if before.entries != now.entries else []
    wrong += ["the experiment"] if before.experiment != now.experiment else []
    if wrong:
        raise UsageError(f"a tuning cannot go on with other settings: {', '.join(wrong)}")
    if now.tune.trials < before.tune.trials:
        raise ConfigError(
            f"tune.trials is {now.tune.trials}, expected {before.tune.trials} or more: the tuning "
            "has so many"
        )
