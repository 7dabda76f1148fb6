"""Trains: from an experiment to a finished run, in one call."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.config import Config
from session.folder import RunFolder
from surreal_like.code_snapshot import keep_algorithm, keep_package_list
from surreal_like.experiment import read_experiment
from surreal_like.interrupts import Interrupts
from surreal_like.resume import (
    check_checkpoints,
    check_same,
    recorded_config,
    reopen,
    seconds_reached,
    session_changes,
)
from surreal_like.run_folder import (
    experiment_name,
    held,
    new_path,
    newest_path,
    put_back_if_refused,
)
from surreal_like.start import Launched, Starter, make_starter
from surreal_like.topology import make_topology
from surreal_like.watch import INTERRUPTED, Watch, show

if TYPE_CHECKING:
    from session.launchers.launcher import Outcome

_POLL_SECONDS = 0.05
# By then everything is running, and nobody waits for the package list.
_SETTLED_SECONDS = 20.0
_EXIT_CODES = {"interrupted": 130, "failed": 1}
_BUDGET_BEFORE_GOAL = 3

Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended.

    Args:
        folder: the run folder.
        result: the content of ``result.json``.
        details: all that the component said for which a run failed.
    """

    folder: Path
    result: dict[str, Any]
    details: str = ""

    @property
    def exit_code(self) -> int:
        """0: the goal is met, or there was none; 3: a budget ended first; 130: interrupted; 1."""
        status = self.result.get("status")
        if status != "stopped":
            return _EXIT_CODES.get(str(status), 1)
        return _BUDGET_BEFORE_GOAL if self.result.get("goal_met") is False else 0

    @property
    def ok(self) -> bool:
        """True if the goal is met, or a budget is used where there was no goal."""
        return self.exit_code == 0

    def progress(self) -> list[dict[str, Any]]:
        """The lines of ``progress.jsonl``."""
        try:
            lines = RunFolder(self.folder).progress.read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class _Order:
    """What was asked for."""

    user: Config
    path: Path
    launcher: str
    resume: bool
    allow_change: tuple[str, ...]
    started: float


def train(  # noqa: PLR0913 - one call says everything that a user may want
    experiment: str | Path | None = None,
    *,
    overrides: Overrides = (),
    launcher: str = "local",
    folder: str | Path | None = None,
    seed: int | None = None,
    agents: int | None = None,
    evals: int | None = None,
    algorithm: str | None = None,
    env: str | None = None,
    resume: bool = False,
    allow_change: Iterable[str] = (),
    watch: Watch | None = None,
    started: float | None = None,
) -> Run:
    """Trains until a stop condition of ``session_config.stop`` is met, and returns the run.

    Args:
        experiment: YAML or JSON file; None: ``algorithm`` and ``env`` say it all, or, with
            ``resume``, the config that the run was made with.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        launcher: ``local``, processes on this machine, or ``serial``, everything in this thread.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        seed: ``session_config.seed``.
        agents: ``session_config.agent.num``.
        evals: ``session_config.evaluator.num``.
        algorithm: name, ``package.module:Class`` or file, instead of the experiment's.
        env: environment, such as ``gym:CartPole-v1``, instead of the experiment's.
        resume: go on with the run in the folder, or with the newest of this experiment.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        watch: is told how the run goes.
        started: when the command began, seconds since 1970.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder, the launcher or the resumed run is wrong; nothing was started.
    """
    started = time.time() if started is None else started
    options = {
        "session_config.seed": seed,
        "session_config.agent.num": agents,
        "session_config.evaluator.num": evals,
    }
    given = {key: value for key, value in options.items() if value is not None}
    name = experiment_name(experiment, algorithm, env) if experiment or algorithm else None
    path = _path(name, folder, resume=resume)
    source = experiment
    if source is None and algorithm is None and resume:
        recorded_config(RunFolder(path))
        source = path / "config.yaml"
    words = [*as_overrides(overrides), *as_overrides(given)]
    user = read_experiment(source, words, algorithm=algorithm, env_name=env)
    if folder is None and not resume and user.session_config.get("folder"):
        path = Path(user.session_config.folder)
    order = _Order(user, path, launcher, resume, tuple(allow_change), started)
    return _run(order, watch or Watch())


def as_overrides(overrides: Overrides) -> list[str]:
    """Overrides as ``key=value`` words; a mapping's values become YAML."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={json.dumps(value, default=str)}" for key, value in overrides.items()]


def _path(name: str | None, folder: str | Path | None, *, resume: bool) -> Path:
    if folder is not None:
        return Path(folder)
    return newest_path(name) if resume else new_path(name or "run")


def _run(order: _Order, watch: Watch) -> Run:
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        starter = make_starter(order.launcher, order.user.algorithm)
        stack.callback(starter.close)
        folder = stack.enter_context(held(order.path, resume=order.resume))
        stack.callback(watch.end)
        watch.prepare(order.path)
        # Not before: it imports numpy, and by now torch is being imported beside us.
        from surreal_like.machine import check_memory, check_ports

        config = _resolve(order, starter, folder, watch)
        check_memory(config)
        check_ports(config)
        with put_back_if_refused(config, folder):
            if order.resume:
                reopen(folder)
            keep_algorithm(config, folder)
            config.dump_file(folder.config)
            interrupts.only_count()
            launched = starter.launch(config, make_topology(config), folder)
        watch.begin(folder, config)
        outcome = _follow(launched, folder, watch, interrupts)
    return Run(order.path, dict(folder.read_result() or {}), outcome.details)


def _resolve(order: _Order, starter: Starter, folder: RunFolder, watch: Watch) -> Config:
    """The config of this part of the run, its times and its folder included."""
    before = recorded_config(folder) if order.resume else None
    config = starter.resolve(order.user)
    started = starter.started(order.started)
    run = {"started": started, "first_started": started, "seconds_before": 0.0}
    if before is not None:
        taken = check_same(before, config, folder, order.allow_change)
        taken |= session_changes(before, config)
        for path, (was, now) in taken.items():
            watch.note(f"changed: {path} was {was}, is {now}")
        if complaint := check_checkpoints(folder):
            watch.note(f"going on from the checkpoint before: {complaint}")
        earlier = before.get("run") or run
        run["first_started"] = earlier["first_started"]
        run["part"] = earlier.get("part", 1) + 1
        run["seconds_before"] = seconds_reached(folder)
    config.session_config.folder = str(folder.path)
    config["run"] = run
    return config


def _follow(launched: Launched, folder: RunFolder, watch: Watch, interrupts: Interrupts) -> Outcome:
    """Stays with the run until nobody is left of it."""
    heard = 0
    began, listed = time.monotonic(), False
    while (outcome := launched.outcome) is None:
        watch = show(watch, launched.poll(_POLL_SECONDS), launched.components())
        if interrupts.count > heard:
            heard = interrupts.count
            _interrupt(launched, watch, heard)
        if not listed and time.monotonic() - began > _SETTLED_SECONDS:
            keep_package_list(folder)
            listed = True
    show(watch, [], launched.components())
    if not listed:
        keep_package_list(folder)
    return outcome


def _interrupt(launched: Launched, watch: Watch, times: int) -> None:
    if times == 1:
        watch.note("stopping cleanly, with a checkpoint; Ctrl-C again ends everything at once")
        launched.stop(interrupted=True, reason=INTERRUPTED)
    else:
        watch.note("ending everything at once")
        launched.kill()
