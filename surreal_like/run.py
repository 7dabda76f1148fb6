"""Trains: from an experiment to a finished run, in one call."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.folder import RunFolder
from surreal_like.code_snapshot import keep_code, keep_package_list
from surreal_like.interrupts import Interrupts
from surreal_like.observer import INTERRUPTED, RunObserver, show
from surreal_like.run_folder import held, put_back_if_refused
from surreal_like.run_request import Overrides, RunRequest, begin, make_request, resolve_request
from surreal_like.start import Launched, make_starter
from surreal_like.topology import make_topology

if TYPE_CHECKING:
    from session.launchers.launcher import Outcome

_POLL_SECONDS = 0.05
# After this time the start is complete, and the package list delays nothing.
_SETTLED_SECONDS = 20.0
# With less free space, files of a run cannot be written any more.
_LEAST_FREE_BYTES = 100_000
_EXIT_CODES = {"interrupted": 130, "failed": 1}
_BUDGET_BEFORE_GOAL = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended.

    Args:
        folder: the run folder.
        result: the content of ``result.json``.
        details: output of the component that caused a failure.
    """

    folder: Path
    result: dict[str, Any]
    details: str = ""

    @property
    def exit_code(self) -> int:
        """0: goal met, or no goal; 3: a budget was used up first; 130: interrupted; 1: failed."""
        status = self.result.get("status")
        if status != "stopped":
            return _EXIT_CODES.get(str(status), 1)
        return _BUDGET_BEFORE_GOAL if self.result.get("goal_met") is False else 0

    @property
    def ok(self) -> bool:
        """True if the goal is met, or a budget is used up without a goal."""
        return self.exit_code == 0

    def progress(self) -> list[dict[str, Any]]:
        """Returns the lines of ``progress.jsonl``."""
        try:
            lines = RunFolder(self.folder).progress.read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines]


def train(  # noqa: PLR0913 - one call has all settings of a user
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
    checkpoint: str | int | None = None,
    start_from: str | Path | None = None,
    watch: RunObserver | None = None,
    started: float | None = None,
) -> Run:
    """Trains until a stop condition of ``session_config.stop`` is met, and returns the run.

    Args:
        experiment: YAML or JSON file; None: only ``algorithm`` and ``env`` are given, or, with
            ``resume``, the config of the run is used.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        launcher: ``local``, processes on this machine, or ``serial``, everything in this thread.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        seed: ``session_config.seed``.
        agents: ``session_config.agent.num``.
        evals: ``session_config.evaluator.num``.
        algorithm: name, ``package.module:Class`` or file; replaces the experiment's.
        env: environment, such as ``gym:CartPole-v1``; replaces the experiment's.
        resume: continue the run in the folder, or the newest run of this experiment.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        checkpoint: from which a resumed run continues: ``best``, ``latest`` (None) or an iteration;
            newer ones are set aside.
        start_from: initialize the networks from another run's checkpoint: its folder, or
            ``FOLDER:best``, ``FOLDER:latest``, ``FOLDER:12000``.
        watch: receives reports about the run.
        started: start time of the command, seconds since 1970.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder, the launcher or the resumed run is wrong; nothing was started.
    """
    settings = {
        "session_config.seed": seed,
        "session_config.agent.num": agents,
        "session_config.evaluator.num": evals,
    }
    order = make_request(
        experiment,
        settings,
        launcher=launcher,
        started=time.time() if started is None else started,
        overrides=overrides,
        folder=folder,
        algorithm=algorithm,
        env=env,
        resume=resume,
        allow_change=allow_change,
        checkpoint=checkpoint,
        start_from=start_from,
    )
    return _run(order, watch or RunObserver())


def _run(order: RunRequest, watch: RunObserver) -> Run:
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        starter = make_starter(order.launcher, order.user.algorithm)
        stack.callback(starter.close)
        folder = stack.enter_context(held(order.path, name=order.name, resume=order.resume))
        stack.callback(watch.end)
        watch.prepare(folder.path)
        # Imported late: it imports numpy, and at this point torch is already being imported in
        # parallel.
        from surreal_like.machine import check_memory, check_ports

        clock = starter.started(order.started)
        config = resolve_request(order, starter.resolve, folder, watch, clock)
        check_memory(config)
        check_ports(config)
        with put_back_if_refused(config, folder):
            begin(order, config, folder, watch)
            keep_code(config, folder)
            config.dump_file(folder.config)
            interrupts.only_count()
            launched = starter.launch(config, make_topology(config), folder)
        watch.begin(folder, config)
        outcome = _follow(launched, folder, watch, interrupts)
    return Run(folder.path, _result(folder, outcome), outcome.details)


def _result(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Returns the content of ``result.json``; if not written, the launcher's outcome."""
    result = dict(folder.read_result() or {})
    if result.get("status", "running") == "running":
        reason = outcome.reason
        if shutil.disk_usage(folder.path).free < _LEAST_FREE_BYTES:
            reason = f"the disk of {folder} is full: free some space, then resume; {reason}"
        elif refusal := folder.refusal:
            reason = f"run folder {folder} cannot be written to ({refusal}); {reason}"
        result |= {"status": outcome.status, "reason": reason}
    return result


def _follow(
    launched: Launched, folder: RunFolder, watch: RunObserver, interrupts: Interrupts
) -> Outcome:
    """Follows the run until no component is left."""
    seen = 0
    began, listed = time.monotonic(), False
    while (outcome := launched.outcome) is None:
        watch = show(watch, launched.poll(_POLL_SECONDS), launched.components())
        if interrupts.count > seen:
            seen = interrupts.count
            _interrupt(launched, watch, seen)
        if not listed and time.monotonic() - began > _SETTLED_SECONDS:
            keep_package_list(folder)
            listed = True
    show(watch, [], launched.components())
    if not listed:
        keep_package_list(folder)
    return outcome


def _interrupt(launched: Launched, watch: RunObserver, times: int) -> None:
    if times == 1:
        watch.note("stopping cleanly, with a checkpoint; Ctrl-C again ends everything at once")
        launched.stop(interrupted=True, reason=INTERRUPTED)
    else:
        watch.note("ending everything at once")
        launched.kill()
