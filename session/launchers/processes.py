"""Starts and signals the processes of one run on this machine, and detects their end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.backend import Backend, Exit, StderrTail
from session.launchers.fork_client import ForkServer, ForkServers, group_lives, kill_group, reap
from session.launchers.memory_use import OutOfMemory
from session.process.component import Component


@dataclass(slots=True)
class _Process:
    """One process.

    Args:
        component: description of the component.
        output: standard output and standard error, and the file that holds them.
        pid: 0 until it is forked.
        descriptor: pidfd, readable once it has ended; -1 without one.
        pending: signals to send once it is forked.
    """

    component: Component
    output: StderrTail
    pid: int = 0
    descriptor: int = -1
    pending: list[int] = field(default_factory=list)


class Processes(Backend):
    """The processes of one run, all forked by fork servers and all children of this process.

    Args:
        folder: the run folder.
        servers: fork servers of the components; this backend closes them.
    """

    def __init__(self, folder: RunFolder, servers: ForkServers) -> None:
        self._folder = folder
        self._servers = servers
        self._processes: dict[str, _Process] = {}
        self._groups: list[int] = []
        self._not_started: list[Exit] = []
        self._memory = OutOfMemory()

    def pid(self, name: str) -> int:
        """Returns the process id of a component, 0 if it has no process."""
        process = self._processes.get(name)
        return process.pid if process is not None else 0

    def start(self, component: Component) -> None:
        """Starts a component."""
        process = _Process(component, StderrTail(self._folder, component.name, self._memory))
        self._processes[component.name] = process
        try:
            self._fork(process)
        except OSError as error:
            self._not_started.append(self._end(process, 1, f"cannot start it: {error}"))

    def _fork(self, process: _Process) -> None:
        component = process.component
        argv, stderr = component.arguments(str(self._folder)), str(process.output.path)
        self._servers.spawn(
            component.name, component.module, argv, stderr, heavy=component.needs_torch
        )

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL goes to the whole group of the process."""
        process = self._processes.get(name)
        if process is None:
            return
        if process.pid == 0:
            # Sent once the fork server has reported the pid.
            process.pending.append(number)
            heavy = process.component.needs_torch
            if number == signal.SIGKILL and not self._servers.server(heavy).ready:
                # The fork server still imports: it has forked no process.
                self._servers.kill(heavy)
        elif number == signal.SIGKILL:
            kill_group(process.pid)
        else:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def wait_on(self) -> list[int]:
        """Returns file descriptors that are readable when :meth:`poll` has something to return."""
        servers = [each.lines.stream.fileno() for each in self._servers.living().values()]
        return servers + [p.descriptor for p in self._processes.values() if p.descriptor >= 0]

    def poll(self) -> list[Exit]:
        """Returns the processes that have ended since the last call, without waiting."""
        # Reports of new processes first: one that has died already is reaped in this call.
        exits = [*self._not_started, *self._read_servers(), *self._reap()]
        self._not_started.clear()
        self._servers.reap()
        self._groups = [group for group in self._groups if group_lives(group)]
        return exits

    def _read_servers(self) -> Iterator[Exit]:
        for heavy, server in self._servers.living().items():
            for name, pid in server.receive().items():
                process = self._processes.get(name)
                if process is None or process.pid:
                    continue
                if pid == 0:
                    yield self._end(process, 1, "cannot start it: fork failed")
                else:
                    self._adopt(process, pid)
            if server.lines.closed:
                yield from self._replace(heavy, server)

    def _adopt(self, process: _Process, pid: int) -> None:
        process.pid = pid
        with suppress(OSError):
            process.descriptor = os.pidfd_open(pid)
        self._servers.guard([each.pid for each in self._processes.values() if each.pid])
        while process.pending:
            self.signal(process.component.name, process.pending.pop(0))

    def _replace(self, heavy: bool, server: ForkServer) -> Iterator[Exit]:
        """Handles the death of a fork server: another one forks what it has not, or that fails."""
        error = self._servers.remove_dead(heavy)
        for process in list(self._processes.values()):
            if process.pid or process.component.needs_torch != heavy:
                continue
            if server.ready and signal.SIGKILL not in process.pending:
                self._fork(process)
            else:
                # An import error would come again in a new server.
                yield self._end(process, UsageError.exit_code if server.error else 1, error)

    def _reap(self) -> Iterator[Exit]:
        for process in list(self._processes.values()):
            if process.pid and (code := reap(process.pid)) is not None:
                yield self._end(process, code)

    def _end(self, process: _Process, exit_code: int, error: str = "") -> Exit:
        name = process.component.name
        del self._processes[name]
        if process.descriptor >= 0:
            os.close(process.descriptor)
        # What it had started was killed with it, and became a child of this process.
        if process.pid:
            self._groups.append(process.pid)
        return process.output.exit(process.pid, exit_code, error)

    def close(self) -> None:
        """Kills the remaining processes and releases all resources."""
        for process in self._processes.values():
            if process.pid:
                kill_group(process.pid)
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, 0)
            if process.descriptor >= 0:
                os.close(process.descriptor)
        self._servers.close()
