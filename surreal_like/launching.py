"""Launches detached runs: from an experiment to a run independent of this process, in one call."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import RunError, UsageError
from session.folder import RunFolder
from surreal_like.code_snapshot import keep_code, keep_package_list
from surreal_like.experiment import resolve_elsewhere
from surreal_like.interrupts import Interrupts
from surreal_like.observer import RunObserver
from surreal_like.run_folder import held, put_back_if_refused
from surreal_like.run_request import Overrides, RunRequest, begin, make_request, resolve_request
from surreal_like.topology import make_topology

if TYPE_CHECKING:
    from session.launchers.launcher import Cluster, RunControl

# Launcher of detached runs -> class.
CLUSTERS = {
    "local": "session.launchers.local:LocalCluster",
    "tmux": "session.launchers.tmux:TmuxCluster",
    "kubernetes": "session.launchers.kubernetes:KubernetesCluster",
}


def launch(  # noqa: PLR0913 - one call has all settings of a user
    experiment: str | Path | None = None,
    *,
    on: str = "local",
    overrides: Overrides = (),
    folder: str | Path | None = None,
    seed: int | None = None,
    agents: int | None = None,
    evals: int | None = None,
    algorithm: str | None = None,
    env: str | None = None,
    host: str | None = None,
    insecure: bool = False,
    resume: bool = False,
    allow_change: Iterable[str] = (),
    checkpoint: str | int | None = None,
    start_from: str | Path | None = None,
    watch: RunObserver | None = None,
) -> RunControl:
    """Launches a run that continues after this process has ended; returns its controls.

    Args:
        experiment: YAML or JSON file; None: only ``algorithm`` and ``env`` are given, or, with
            ``resume``, the config of the run is used.
        on: ``local``, ``tmux`` or ``kubernetes``.
        overrides: ``{"section.key": value}`` or ``["section.key=value"]``.
        folder: run folder; None: ``runs/<name>-<date>-<time>``.
        seed: ``session_config.seed``.
        agents: ``session_config.agent.num``.
        evals: ``session_config.evaluator.num``.
        algorithm: name, ``package.module:Class`` or file; replaces the experiment's.
        env: environment, such as ``gym:CartPole-v1``; replaces the experiment's.
        host: ``session_config.launcher.host``: address of this machine for other machines.
        insecure: ``session_config.security.insecure``.
        resume: continue the run in the folder, or the newest run of this experiment.
        allow_change: keys outside ``session_config`` in which a resumed run may differ.
        checkpoint: from which a resumed run continues: ``best``, ``latest`` (None) or an iteration;
            newer ones are set aside.
        start_from: initialize the networks from another run's checkpoint: its folder, or
            ``FOLDER:best``, ``FOLDER:latest``, ``FOLDER:12000``.
        watch: receives reports about what a resumed run takes over.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        UsageError: the launcher or the folder is wrong, or a program is missing; nothing was
            started.
        RunError: the run ended during its start; the message gives the reason, its folder has
            details.
    """
    check_launcher(on)
    settings = {
        "session_config.seed": seed,
        "session_config.agent.num": agents,
        "session_config.evaluator.num": evals,
        "session_config.launcher.host": host,
        "session_config.security.insecure": insecure or None,
    }
    order = make_request(
        experiment,
        settings,
        launcher=on,
        started=time.time(),
        overrides=overrides,
        folder=folder,
        algorithm=algorithm,
        env=env,
        resume=resume,
        allow_change=allow_change,
        checkpoint=checkpoint,
        start_from=start_from,
    )
    return _launch(order, watch or RunObserver())


def check_launcher(on: str) -> None:
    """Rejects a launcher that does not exist or whose program is missing, before all other work.

    Raises:
        UsageError: the message lists the launchers, or the program to install.
    """
    if on not in CLUSTERS:
        hint = did_you_mean(on, CLUSTERS, lead="; ")
        if on == "serial":
            hint = ": serial runs in the thread that trains, with surreal-like train --on serial"
        raise UsageError(f"no launcher '{on}' for a detached run: local, tmux, kubernetes{hint}")
    if on == "tmux":
        from session.launchers.tmux_session import require_tmux

        require_tmux()


def _launch(order: RunRequest, watch: RunObserver) -> RunControl:
    died: RunError | None = None
    with ExitStack() as stack:
        stack.enter_context(Interrupts())
        folder = stack.enter_context(held(order.path, name=order.name, resume=order.resume))
        watch.prepare(folder.path)
        # The image of the cluster, not this machine, has the environment and the device.
        here = order.launcher != "kubernetes"
        resolved = partial(resolve_elsewhere, must_be_installed=here)
        config = resolve_request(order, resolved, folder, watch, order.started)
        if order.launcher != "kubernetes":
            from surreal_like.machine import check_memory, check_ports

            check_memory(config)
            check_ports(config)
        with put_back_if_refused(config, folder):
            begin(order, config, folder, watch)
            keep_code(config, folder)
            cluster = make_cluster(order.launcher, config, folder)
            if order.launcher == "kubernetes":
                from session.launchers.kubernetes.advice import launch_advice

                for line in launch_advice(config, [each.name for each in make_topology(config)]):
                    watch.note(line)
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


def make_cluster(on: str, config: Config, folder: RunFolder) -> Cluster:
    """Returns the object that launches and controls a run.

    Args:
        on: ``local``, ``tmux`` or ``kubernetes``.
        config: the resolved experiment.
        folder: the run folder.
    """
    module, _, name = CLUSTERS[on].partition(":")
    make: Any = getattr(importlib.import_module(module), name)
    cluster: Cluster = make(config, make_topology(config), folder)
    return cluster
