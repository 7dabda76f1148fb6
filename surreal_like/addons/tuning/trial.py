"""A trial as a run: its request, and what its process does besides the run."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from session.config import Config
from session.config.config import apply_overrides, override
from session.errors import (
    HOPELESS,
    START_AGAIN,
    CheckpointError,
    ConfigError,
    SurrealError,
    UsageError,
)
from session.folder import RunFolder
from session.json_file import (
    COUNT,
    NUMBER,
    OBJECT,
    TEXT,
    VALUE,
    Leaf,
    MapOf,
    Maybe,
    Nullable,
    read_object,
)
from session.launchers.registry import launcher_of
from session.process.context import run_part
from session.process.entry import Lifeline
from session.process.heartbeat import State
from surreal_like.addons.tuning.reporter import TrialBeat
from surreal_like.addons.tuning.slots import VISIBLE, find_gpus, gpu_of
from surreal_like.addons.tuning.state import TrialState
from surreal_like.addons.tuning.tune_file import TuneFile, by_words, read_tune_file
from surreal_like.coordinator.stop_rule import LEFT
from surreal_like.experiment.resolve import resolve
from surreal_like.run.folder import TUNING
from surreal_like.run.observer import RunObserver
from surreal_like.run.request import RunRequest
from surreal_like.run.start import SerialStarter
from surreal_like.run.train import run_here

TUNE_FILE = "tune.yaml"
# Version of tuning.json.
FORMAT = 1
_TRIAL = {
    "name": TEXT,
    "settings": OBJECT,
    "state": Leaf("a state of a trial", lambda value: value in tuple(map(str, TrialState))),
    "time": NUMBER,
    **dict.fromkeys(("score", "best_score"), Nullable(VALUE)),
    **dict.fromkeys(("generation", "failures"), COUNT),
    **dict.fromkeys(("parent", "reason"), TEXT),
    # Older tunings lack them.
    "cpu_seconds": Maybe(NUMBER),
    "slot": Maybe(COUNT),
}
_STATE = {
    "format": COUNT,
    "seconds": Maybe(NUMBER),
    "trials": [_TRIAL],
    "scheduler": Maybe(OBJECT),
    "skipped": Maybe(COUNT),
    "unfit": Maybe(MapOf(TEXT)),
}
SEED = "session_config.seed"
# Modules of a serial run that the fork server imports once for all trials.
MODULES = (
    "session.launchers.local",
    "session.launchers.serial",
    "main.loggerplex",
    "main.tensorplex",
    "main.replay",
    "main.trial",
)


class TrialStarter(SerialStarter):
    """Runs a serial trial in this thread; its process exists for this trial alone."""

    def resolve(self, user: Config) -> Config:
        """Resolves the experiment in this process, which was forked for it."""
        return resolve(user)


class TrialWatch(RunObserver):
    """Beats for a trial, and ends it when its tuning has died.

    Args:
        beat: heartbeat of the trial.
    """

    def __init__(self, beat: TrialBeat) -> None:
        self._beat, self._lifeline = beat, Lifeline()

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes the heartbeat if it is due."""
        self._beat.tick()
        # Like two interrupts of a user: everything ends at once.
        self._lifeline.pass_on(signal.SIGINT, signal.SIGINT)


def trial_name(number: int) -> str:
    """Returns the name of a trial, which is that of its folder."""
    return f"trial-{number:03}"


def own_words(file: TuneFile) -> list[str]:
    """Returns the settings that a tuning gives to every trial, as ``key=value``."""
    learner = "session_config.learner"
    words = [
        override(f"{learner}.report_every", file.report_every),
        override(f"{learner}.report_by", file.tune.time),
    ]
    stop = file.tune.stop
    if any(budget is not None for budget in stop.values()):
        words += [override(f"session_config.stop.{key}", value) for key, value in stop.items()]
    return words


def experiment_words(file: TuneFile) -> list[str]:
    """Returns the experiment but for its algorithm, as ``key=value``."""
    return [override(key, value) for key, value in by_words(file.experiment.to_dict()).items()]


def seed_of(file: TuneFile, number: int) -> int:
    """Returns the seed of a trial whose settings have none."""
    return int((file.experiment.get("session_config") or {}).get("seed", 0)) + number


def new_request(file: TuneFile, settings: Mapping[str, Any], number: int, **own: Any) -> RunRequest:
    """Returns the request for a new trial.

    Args:
        file: file of the tuning.
        settings: settings of the trial.
        number: number of the trial; it is added to the seed of the experiment.
        own: further fields of the request.
    """
    words = [*experiment_words(file), override(SEED, seed_of(file, number))]
    words += [override(key, value) for key, value in settings.items()]
    return RunRequest(
        None,
        file.tune.launcher,
        [*words, *own_words(file)],
        algorithm=file.experiment.get("algorithm"),
        **own,
    )


def run_id_of(tuning: RunFolder, name: str) -> str:
    """Returns the id under which trackers know a trial, the same on all machines of a tuning.

    It is empty, and may be any, where no machine can join.
    """
    key = tuning.keys / "server.pub"
    if not key.is_file():
        return ""
    return hashlib.sha256(f"{key.read_text().strip()}/{name}".encode()).hexdigest()[:12]


def write_part(run: RunFolder, file: TuneFile, new: Config | None) -> None:
    """Writes the config of a trial of which a part has begun at a worker, as its run here would.

    Args:
        run: the run of the trial.
        file: file of the tuning.
        new: the resolved config if this is the first part; None: that of the part before is there.

    Raises:
        ConfigError: it cannot be read, or written.
    """
    before = run.read_config() if new is None else new
    config = apply_overrides(before, own_words(file))
    # Of the process that has resolved it; a run replaces it by the hashes of its copies.
    (config.get("recorded") or {}).pop("modules", None)
    began = 0.0 if launcher_of(file.tune.launcher).one_thread else time.time()
    config["run"] = {
        "started": began,
        "first_started": began,
        "seconds_before": 0.0,
        **(before.get("run") or {}),
        "part": 1 if new is not None else run_part(before) + 1,
        "launcher": file.tune.launcher,
        "trial": run.path.name,
    }
    if new is not None:
        config["run"]["id"] = run_id_of(RunFolder(run.path.parent), run.path.name)
    config.session_config.folder = str(run.path)
    run.path.mkdir(exist_ok=True)
    config.dump_file(run.config)


def request_of_trial(tuning: RunFolder, name: str) -> RunRequest:
    """Returns the request to begin a trial, or to go on with it.

    Args:
        tuning: folder of the tuning.
        name: name of the trial.

    Raises:
        ConfigError: the tune file is wrong.
        UsageError: the tuning has no such trial.
    """
    file = read_tune_file(tuning.path / TUNE_FILE)
    folder = RunFolder(tuning.path / name)
    if folder.config.is_file():
        return RunRequest(
            None, file.tune.launcher, own_words(file), folder.path, resume=True, trial=name
        )
    # Left by a process that was killed before its run began.
    shutil.rmtree(folder.path, ignore_errors=True)
    trials = read_tuning(tuning.path)["trials"]
    for number, each in enumerate(trials):
        if each["name"] == name:
            own = {"folder": folder.path, "trial": name, "run_id": run_id_of(tuning, name)}
            return new_request(file, each["settings"], number, **own)
    raise UsageError(f"{tuning} has no trial {name}; there are {len(trials)}")


def choose_gpu(tuning: RunFolder, name: str) -> None:
    """Lets this process, and those that it starts, see the GPU of the trial's slot alone."""
    share, gpus = read_tune_file(tuning.path / TUNE_FILE).tune.trial_gpus, find_gpus()
    slots = {each["name"]: each.get("slot") for each in read_tuning(tuning.path)["trials"]}
    if share and gpus and (slot := slots.get(name)) is not None:
        os.environ[VISIBLE] = gpu_of(slot, share, gpus)


def run_trial(tuning: RunFolder, name: str) -> int:
    """Runs a trial to its end, in this process; returns the exit code of its run.

    75: it was asked to save and is to be started again. 70: another start would fail in the same
    way.
    """
    beat = TrialBeat(tuning.path, name)
    beat.beat("starting", state=State.starting)
    try:
        choose_gpu(tuning, name)
        request = request_of_trial(tuning, name)
        starter = TrialStarter() if launcher_of(request.launcher).one_thread else None
        ended = run_here(request, TrialWatch(beat), starter)
    except KeyboardInterrupt:
        # Its run had not begun.
        return START_AGAIN
    except SurrealError as error:
        sys.stderr.write(f"{error}\n")
        # No checkpoint is whole, or a setting is wrong: another start would end in the same way.
        hopeless = isinstance(error, CheckpointError) or error.exit_code == UsageError.exit_code
        return HOPELESS if hopeless else error.exit_code
    finally:
        beat.beat("ended", state=State.done)
    reason = str(ended.result.get("reason", ""))
    if ended.exit_code == 1:
        sys.stderr.write(f"{ended.details}\n{reason}\n")
    left = reason == LEFT or ended.result.get("status") == "interrupted"
    return START_AGAIN if left else ended.exit_code


def read_tuning(tuning: Path) -> dict[str, Any]:
    """Reads ``tuning.json``.

    Raises:
        ConfigError: it is missing or damaged, or has another format.
    """
    path = tuning / TUNING
    try:
        if (found := read_object(path, {"format": COUNT})["format"]) != FORMAT:
            raise ConfigError(f"{path} has format {found}, expected {FORMAT}")
        return read_object(path, _STATE)
    except ConfigError as error:
        raise ConfigError(f"{path}: not the state of a tuning ({error})") from None
