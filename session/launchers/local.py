"""The local launchers: every component is a supervised process of this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import suppress

import psutil

from session.config import Config
from session.folder import RunFolder
from session.launchers.backend import Backend
from session.launchers.fork_client import ForkServers, Preload
from session.launchers.handle import Cluster
from session.launchers.launcher import (
    SUPERVISOR_MODULE,
    await_supervisor,
    refuse_running,
    write_launch,
)
from session.launchers.processes import Processes
from session.launchers.supervisor import Supervisor
from session.process.component import Topology

# The shell ends at once: the supervisor is not a child of this process, so no zombie remains.
_DETACH = 'output=$1; shift; "$@" </dev/null >>"$output" 2>&1 & echo $!'


class LocalLauncher(Supervisor):
    """Starts the components of one run as processes, and keeps them alive until it is over.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, made already; it is locked while the run goes on.
        preload: modules that the fork servers import.
        servers: running fork servers to use instead; this launcher closes them.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        preload: Preload | None = None,
        servers: ForkServers | None = None,
    ) -> None:
        super().__init__(config, topology, folder)
        self._preload = preload or Preload()
        self._servers = servers

    def _make_backend(self) -> Backend:
        self._servers = self._servers or ForkServers(self._preload)
        # A supervisor that is killed cannot remove them itself.
        self._servers.remove_sockets_at_end(self._folder)
        return Processes(self._folder, self._servers)

    def _close(self) -> None:
        had_backend = self.running
        super()._close()
        # Otherwise the backend has closed them.
        if self._servers is not None and not had_backend:
            self._servers.close()
        self._servers = None

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._servers is not None:
            self._servers.close()


class LocalCluster(Cluster):
    """Launches a run as processes detached from this one, without a terminal; then controls it.

    Args:
        config: the resolved experiment.
        topology: components of the run and their wiring.
        folder: the run folder, made already.
        supervisor_module: entry module of the supervisor.
    """

    name = "local"

    def __init__(
        self,
        config: Config,
        topology: Topology,
        folder: RunFolder,
        *,
        supervisor_module: str = SUPERVISOR_MODULE,
    ) -> None:
        super().__init__(RunFolder(folder.path.resolve()))
        self._config = config
        self._topology = topology
        self._supervisor_module = supervisor_module

    def launch(self) -> None:
        """Starts the supervisor as a detached process, and returns once it replies.

        Raises:
            UsageError: the folder is in use.
            RunError: the supervisor died at once; with its own message.
        """
        refuse_running(self._folder)
        write_launch(self._folder, self._config, self._topology, self.name)
        stderr = str(self._folder.logs / "supervisor.err")
        started = subprocess.run(
            ["/bin/sh", "-c", _DETACH, "sh", stderr, *self._command()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            start_new_session=True,
        )
        pid = int(started.stdout)
        try:
            await_supervisor(self._folder, lambda: not _lives(pid))
        except BaseException:
            # A run whose launch failed must leave no process: the components end with it.
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
            raise

    def dry_run(self) -> str:
        """Returns the commands of the supervisor and of its components; these also run alone."""
        lines = [self._command(), *(each.command(str(self._folder)) for each in self._topology)]
        return "\n".join(["# a supervisor, and what it starts", *map(shlex.join, lines)])

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", self._supervisor_module, "--folder", str(self._folder)]


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
