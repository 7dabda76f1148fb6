"""Starters of runs: the same steps for processes of this machine and for one thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from session.config import Config
from session.errors import RunError, UsageError
from session.folder import RunFolder
from session.launchers.registry import attached_launcher
from session.process.component import Topology
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.experiment.resolve_process import (
    MODULE,
    Resolved,
    only_one,
    try_all,
    try_in_process,
)
from surreal_like.experiment.topology import PRELOAD

if TYPE_CHECKING:
    from session.launchers.fork_client import ForkServers
    from session.launchers.local import LocalLauncher
    from session.launchers.serial import SerialLauncher

# A run in progress, which advances while it is polled.
Launched: TypeAlias = "LocalLauncher | SerialLauncher"
Starter: TypeAlias = "LocalStarter | SerialStarter"


def make_starter(launcher: str, algorithm: str) -> Starter:
    """Returns the starter of a launcher; a local one starts to import modules at once.

    Args:
        launcher: ``local`` or ``serial``.
        algorithm: algorithm of the experiment.

    Raises:
        UsageError: the launcher does not exist.
    """
    alone = attached_launcher(launcher).one_thread
    return SerialStarter() if alone else LocalStarter(algorithm)


def fork_servers(algorithm: str, *modules: str) -> ForkServers:
    """Starts fork servers, which import modules at once.

    Args:
        algorithm: name of it; a registered one is imported only once for all processes.
        modules: further ones of the heavy server.
    """
    from session.launchers.fork_client import ForkServers

    module = list_algorithms().get(algorithm, "").partition(":")[0]
    return ForkServers(replace(PRELOAD, heavy=(*PRELOAD.heavy, module, *modules)))


def try_forked(
    servers: ForkServers,
    users: Sequence[Config],
    known: Config | None = None,
    *,
    seconds: float = math.inf,
) -> list[Resolved]:
    """Resolves experiments in one process of the heavy fork server; returns as ``try_all``.

    Args:
        servers: servers of this process.
        users: the experiments.
        known: a complete config, whose specs hold for those with the same environment.
        seconds: time after which the remaining ones are left out.

    Raises:
        SurrealError: that process died.
    """

    def run(asked: str, answer: str) -> str:
        folder = Path(asked).parent
        # A process that is killed cannot remove it itself.
        servers.remove_at_end(str(folder))
        errors = folder / "stderr"
        try:
            servers.call(MODULE, [asked, answer], str(errors))
        except RunError as error:
            raise RunError(f"the experiment could not be resolved: {error}") from None
        return errors.read_text(errors="replace") if errors.exists() else ""

    return try_in_process(run, users, known, seconds=seconds)


class LocalStarter:
    """Starts processes of this machine; resolving and the components share one import of torch.

    Args:
        algorithm: algorithm of the experiment; a registered one is imported only once for all, too.
    """

    def __init__(self, algorithm: str) -> None:
        self._servers = fork_servers(algorithm)
        self._launcher: LocalLauncher | None = None

    def started(self, command_started: float) -> float:
        """Returns the wall clock time of the command's start."""
        return command_started

    def resolve(self, user: Config) -> Config:
        """Resolves the experiment in a process of the heavy fork server."""
        # For launch(): imported here, while the fork servers are still importing anyway.
        import session.launchers.local  # noqa: F401

        return only_one(try_forked(self._servers, [user]))

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> LocalLauncher:
        """Starts every component as a supervised process."""
        from session.launchers.local import LocalLauncher

        self._launcher = LocalLauncher(config, topology, folder, servers=self._servers)
        self._launcher.launch()
        return self._launcher

    def close(self) -> None:
        """Kills the remaining components of the run, and ends the fork servers."""
        if self._launcher is not None:
            self._launcher.__exit__(None, None, None)
        else:
            self._servers.close()


class SerialStarter:
    """Runs all components in this thread, on a counted clock: equal seeds, identical runs."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._began: float | None = None

    def started(self, command_started: float) -> float:
        """Returns 0, the start of the counted clock."""
        self._began = command_started
        return 0.0

    def resolve(self, user: Config) -> Config:
        """Resolves the experiment here, where its environments and torch are needed anyway."""
        return only_one(try_all([user]))

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> SerialLauncher:
        """Starts every component as a service that is ticked in turn.

        Raises:
            UsageError: there is a gateway, whose clients are outside of the counted clock.
        """
        if server := next((each for each in topology if each.serves), None):
            raise UsageError(
                f"clients of a {server.kind} cannot take part in a serial run: set "
                f"session_config.{server.kind}.num to 0, or use another launcher"
            )
        import torch

        from session.launchers.serial import SerialLauncher

        # With more threads, the order of summation would depend on the machine.
        self._stack.callback(torch.set_num_threads, torch.get_num_threads())
        one_thread = partial(torch.set_num_threads, 1)
        launcher = SerialLauncher(config, topology, folder, prepare=one_thread, began=self._began)
        launcher.launch()
        return self._stack.enter_context(launcher)

    def close(self) -> None:
        """Ends the remaining services of the run, and restores torch's number of threads."""
        self._stack.close()
