"""Runs an experiment, here or detached: from a request to a finished or a running run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.addons import load
from session.config.named_code import Overrides
from session.errors import NOTICE, RunError
from session.folder import RunFolder
from session.launchers.registry import launcher_of
from surreal_like.experiment.resolve_process import resolve_elsewhere
from surreal_like.experiment.topology import make_topology
from surreal_like.experiment.user_code import keep_package_list
from surreal_like.run.folder import with_refusal
from surreal_like.run.observer import INTERRUPTED, Interrupts, RunObserver, show
from surreal_like.run.request import RunRequest
from surreal_like.run.start import Launched, Starter, make_starter

if TYPE_CHECKING:
    from session.launchers.handle import RunHandle
    from session.launchers.launcher import Outcome

_POLL_SECONDS = 0.05
# After this time the start is complete, and the package list delays nothing.
_SETTLED_SECONDS = 20.0
_EXIT_CODES = {"interrupted": 130, "failed": 1}
_BUDGET_BEFORE_GOAL = 3
# So many interrupts end a run without saving.
_AT_ONCE = 2


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
        """Returns the lines of ``progress.jsonl``; damaged ones are left out."""
        return RunFolder(self.folder).progress_tail().objects()


def train(  # noqa: PLR0913 - one call has all settings of a user
    experiment: str | Path | None = None,
    *,
    overrides: Overrides = (),
    launcher: str = "local",
    folder: str | Path | None = None,
    seed: int | None = None,
    agents: int | None = None,
    evals: int | None = None,
    algorithm: str | type[Any] | None = None,
    env: str | Callable[..., Any] | None = None,
    resume: bool = False,
    allow_change: Iterable[str] = (),
    checkpoint: str | int | None = None,
    start_from: str | Path | None = None,
    parts: Iterable[str] = (),
    watch: RunObserver | None = None,
    started: float | None = None,
) -> Run:
    """Trains until a stop condition of ``session_config.stop`` is met, and returns the run.

    Args:
        experiment: YAML or JSON file, or the name of a shipped one; None: only ``algorithm`` and
            ``env`` are given, or, with ``resume``, the config of the run is used.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``; in place of a name of
            code a value may be the class or function.
        launcher: ``local``, processes on this machine, or ``serial``, everything in this thread.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        seed: ``session_config.seed``.
        agents: ``session_config.agent.num``.
        evals: ``session_config.evaluator.num``.
        algorithm: name, ``package.module:Class`` or file, or the class; replaces the experiment's.
        env: environment, such as ``gym:CartPole-v1``, or a class or function that other processes
            can import; replaces the experiment's.
        resume: continue the run in the folder, or the newest run of this experiment.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        checkpoint: where a resumed run continues: ``best``, ``latest`` (None) or an iteration;
            newer ones are set aside.
        start_from: initialize the networks from another run's checkpoint: its folder, or
            ``FOLDER:best``, ``FOLDER:latest``, ``FOLDER:12000``.
        parts: parts of the networks that it takes from there, such as ``["torso"]``, also of
            another algorithm's; empty: all.
        watch: receives reports about the run.
        started: start time of the command, seconds since 1970.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the folder, the launcher or the resumed run is wrong; nothing was started.
    """
    request = RunRequest(
        experiment,
        launcher,
        overrides,
        folder,
        seed=seed,
        agents=agents,
        evals=evals,
        algorithm=algorithm,
        env=env,
        resume=resume,
        allow_change=allow_change,
        checkpoint=checkpoint,
        start_from=start_from,
        parts=parts,
        started=time.time() if started is None else started,
    )
    return run_here(request, watch)


def launch(  # noqa: PLR0913 - one call has all settings of a user
    experiment: str | Path | None = None,
    *,
    on: str = "local",
    overrides: Overrides = (),
    folder: str | Path | None = None,
    seed: int | None = None,
    agents: int | None = None,
    evals: int | None = None,
    algorithm: str | type[Any] | None = None,
    env: str | Callable[..., Any] | None = None,
    host: str | None = None,
    insecure: bool = False,
    resume: bool = False,
    allow_change: Iterable[str] = (),
    checkpoint: str | int | None = None,
    start_from: str | Path | None = None,
    parts: Iterable[str] = (),
    watch: RunObserver | None = None,
) -> RunHandle:
    """Launches a run that continues after this process has ended; returns its controls.

    Args:
        on: ``local``, ``tmux``, ``kubernetes``, ``slurm`` or ``ray``.
        host: ``session_config.launcher.host``: address of this machine for other machines.
        insecure: ``session_config.security.insecure``.
        watch: receives reports about what a resumed run takes over.

    The other arguments are those of :func:`train`.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the launcher or the folder is wrong, or a program is missing; nothing was
            started.
        RunError: the run ended during its start; the message gives the reason, its folder has
            details.
    """
    request = RunRequest(
        experiment,
        on,
        overrides,
        folder,
        seed=seed,
        agents=agents,
        evals=evals,
        algorithm=algorithm,
        env=env,
        host=host,
        insecure=insecure,
        resume=resume,
        allow_change=allow_change,
        checkpoint=checkpoint,
        start_from=start_from,
        parts=parts,
    )
    return run_detached(request, watch)


def run_here(
    request: RunRequest, watch: RunObserver | None = None, starter: Starter | None = None
) -> Run:
    """Runs in this process until the run is over; raises as :func:`train`.

    Args:
        request: request of the user.
        watch: receives reports.
        starter: starter of the components; None: that of the launcher.
    """
    watch = watch or RunObserver()
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        launched, folder = start_here(request, stack, watch, interrupts.only_count, starter)
        outcome = _follow(launched, folder, watch, interrupts)
    return Run(folder.path, result_of(folder, outcome), outcome.details)


def start_here(
    request: RunRequest,
    stack: ExitStack,
    watch: RunObserver,
    before_launch: Callable[[], object] = lambda: None,
    starter: Starter | None = None,
) -> tuple[Launched, RunFolder]:
    """Starts the run in this process, where it goes on while it is polled; raises as :func:`train`.

    Args:
        request: request of the user.
        stack: gets what ends the run and releases its folder.
        watch: receives reports.
        before_launch: called when the experiment is resolved, before a component starts.
        starter: starter of the components; None: that of the launcher.
    """
    user = request.read_start()
    starter = starter or make_starter(request.launcher, user.algorithm)
    stack.callback(starter.close)
    folder = stack.enter_context(request.held(user, watch))
    stack.callback(watch.end)
    clock = starter.started(request.started)
    with request.prepared(user, starter.resolve, folder, watch, clock) as config:
        config.dump_file(folder.config)
        before_launch()
        launched = starter.launch(config, make_topology(config), folder)
    watch.begin(folder, config)
    return launched, folder


def run_detached(request: RunRequest, watch: RunObserver | None = None) -> RunHandle:
    """Starts the run detached from this process; returns and raises as :func:`launch`."""
    # Not at the top: it imports ZeroMQ, which delays the start of a run in this process.
    from session.launchers.handle import check_launcher, make_cluster

    check_launcher(request.launcher)
    launcher = launcher_of(request.launcher)
    watch, user, died = watch or RunObserver(), request.read_start(), None
    # The image of a cluster, not this machine, has the environment and the device.
    resolve = partial(resolve_elsewhere, must_be_installed=not launcher.remote)
    with (
        Interrupts(),
        request.held(user, watch) as folder,
        request.prepared(user, resolve, folder, watch, request.started) as config,
    ):
        topology = make_topology(config)
        cluster = make_cluster(request.launcher, config, topology, folder)
        if launcher.advice:
            for line in load(launcher.advice)(config, [each.name for each in topology]):
                watch.on_message(line)
        # From here on the supervisor holds the lock.
        folder.unlock()
        try:
            cluster.launch()
        except RunError as error:
            # The folder is kept: it contains the reason.
            died = error
    if died is not None:
        raise died
    keep_package_list(folder)
    return cluster


def result_of(folder: RunFolder, outcome: Outcome) -> dict[str, Any]:
    """Returns the content of ``result.json``; if not written, the launcher's outcome."""
    result = dict(folder.read_result() or {})
    if result.get("status", "running") == "running":
        reason = with_refusal(folder, outcome.reason)
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
            _interrupt(launched, watch, interrupts)
        if not listed and time.monotonic() - began > _SETTLED_SECONDS:
            keep_package_list(folder)
            listed = True
    show(watch, [], launched.components())
    # A run that ends at once leaves the list out, which takes a tenth of a second.
    if not listed and interrupts.count < _AT_ONCE:
        keep_package_list(folder)
    return outcome


def _interrupt(launched: Launched, watch: RunObserver, interrupts: Interrupts) -> None:
    if interrupts.count < _AT_ONCE:
        watch.on_message(
            "stopping cleanly, with a checkpoint and an evaluation of it; Ctrl-C again ends "
            "everything at once"
        )
        reason = NOTICE if interrupts.terminated else INTERRUPTED
        launched.stop(interrupted=True, reason=reason)
    else:
        watch.on_message("ending everything at once")
        launched.kill()
