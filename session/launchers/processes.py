"""Starts and signals the processes of one run on this machine, and detects their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from session.component import Component
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.backend import Exit, StderrTail
from session.launchers.forker import kill_group
from session.launchers.out_of_memory import OutOfMemory
from session.launchers.subreaper import group_lives, set_subreaper
from session.launchers.zygote import ONE_THREAD, Zygote


@dataclass(slots=True)
class _Process:
    """One process.

    Args:
        component: its description.
        words: its output, and the file that holds it.
        pid: 0 until the zygote has forked it.
        waited_for: this process reaps it, not the zygote.
        descriptor: pidfd, readable once it has ended; -1 while the zygote reports its end.
        pending: signals to send once it is forked.
    """

    component: Component
    words: StderrTail
    pid: int = 0
    waited_for: bool = False
    descriptor: int = -1
    pending: list[int] = field(default_factory=list)


class Processes:
    """The processes of one run.

    While it is open this process is a subreaper: it inherits the orphans of its descendants, and so
    can wait for the zygote's children if the zygote dies.

    Args:
        folder: the run folder.
        zygote: forks the components that need torch.
    """

    def __init__(self, folder: RunFolder, zygote: Zygote) -> None:
        self.keep_warm = True
        self._folder = folder
        self._zygote = zygote
        self._processes: dict[str, _Process] = {}
        self._groups: list[int] = []
        self._unborn: list[Exit] = []
        self._memory = OutOfMemory()
        self._was_subreaper = set_subreaper(True)

    def __len__(self) -> int:
        return len(self._processes)

    def pid(self, name: str) -> int:
        """Returns the process id of a component, 0 if it has no process."""
        process = self._processes.get(name)
        return process.pid if process is not None else 0

    def start(self, component: Component) -> None:
        """Starts a component: by fork if it needs torch, else as a spare or by command line."""
        process = _Process(component, StderrTail(self._folder, component.name, self._memory))
        self._processes[component.name] = process
        try:
            if component.needs_torch:
                self._fork(process)
            elif component.module in self._zygote.spares:
                self._use_spare(process)
            else:
                self._run(process)
        except OSError as error:
            self._unborn.append(self._end(process, 1, f"cannot start it: {error}"))

    def _fork(self, process: _Process) -> None:
        if self._zygote.buried:
            self._zygote.restart()
        component = process.component
        argv = component.arguments(str(self._folder))
        self._zygote.spawn(component.name, component.module, argv, str(process.words.path))

    def _use_spare(self, process: _Process) -> None:
        component = process.component
        argv = component.arguments(str(self._folder))
        self._zygote.use_spare(component.name, component.module, argv, str(process.words.path))

    def _run(self, process: _Process) -> None:
        lifeline = self._zygote.lifeline
        with process.words.path.open("ab") as stderr:
            started = subprocess.Popen(
                process.component.command(str(self._folder)),
                env={**ONE_THREAD, **lifeline.environment()},
                pass_fds=(lifeline.reader,),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        # Reaped by pid, like inherited processes; Popen must not wait for it as well.
        started.returncode = 0
        process.pid = started.pid
        self._own(process)

    def _own(self, process: _Process) -> None:
        """Makes this process wait for the end; the zygote guards it, in case this process dies."""
        if not process.waited_for:
            process.waited_for = True
            with suppress(OSError):
                process.descriptor = os.pidfd_open(process.pid)
        self._zygote.guard(process.pid)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL goes to the whole group of the process."""
        process = self._processes.get(name)
        if process is None:
            return
        if process.pid == 0:
            # Sent once the zygote has reported the pid.
            process.pending.append(number)
            if number == signal.SIGKILL and not self._zygote.ready:
                # The zygote still imports: it has no children that would survive it.
                self._zygote.kill()
        elif number == signal.SIGKILL:
            kill_group(process.pid)
        else:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def wait_on(self) -> list[int]:
        """Returns file descriptors that are readable when :meth:`poll` has something to return."""
        descriptors = [p.descriptor for p in self._processes.values() if p.descriptor >= 0]
        return descriptors if self._zygote.buried else [self._zygote.fileno(), *descriptors]

    def poll(self) -> list[Exit]:
        """Returns the processes that have ended since the last call, without waiting."""
        exits = [*self._unborn, *self._read_fork_server(), *self._reap()]
        self._unborn.clear()
        self._groups = [group for group in self._groups if group_lives(group)]
        return exits

    def _read_fork_server(self) -> Iterator[Exit]:
        if self._zygote.buried:
            return
        for report in self._zygote.receive():
            name = report.get("spawned", report.get("exited"))
            process = self._processes.get(str(name))
            if process is None or process.waited_for:
                continue
            if "spawned" in report:
                process.pid = report["pid"]
                while process.pending:
                    self.signal(process.component.name, process.pending.pop(0))
            elif report["pid"] == process.pid:
                yield self._end(process, report["status"])
        if self._zygote.dead:
            yield from self._survive_zygote()

    def _survive_zygote(self) -> Iterator[Exit]:
        """Handles the death of the zygote: its children live on; pending forks restart or fail."""
        was_ready, error = self._zygote.ready, self._zygote.last_words()
        # An import error would come again in a new zygote.
        hopeless = bool(self._zygote.error)
        # Unused spare processes end by themselves; this process inherits and reaps them.
        self._groups.append(self._zygote.pid)
        if self.keep_warm and not hopeless:
            self._zygote.restart()
        else:
            self._zygote.reap()
        for process in list(self._processes.values()):
            if process.pid:
                self._own(process)
            elif not process.component.needs_torch and self.keep_warm:
                self._run(process)
            elif was_ready and self.keep_warm and signal.SIGKILL not in process.pending:
                self._fork(process)
            else:
                code = UsageError.exit_code if hopeless else 1
                yield self._end(process, code, f"the zygote died: {error}")

    def _reap(self) -> Iterator[Exit]:
        for process in list(self._processes.values()):
            if not process.waited_for:
                continue
            try:
                if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    continue
                # Before it is reaped: until then no other process can have its pid.
                kill_group(process.pid)
                _, status = os.waitpid(process.pid, 0)
                code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                # The zygote has reaped it and died before its report: the exit code is lost.
                code = 1
            yield self._end(process, code)

    def _end(self, process: _Process, exit_code: int, error: str = "") -> Exit:
        name = process.component.name
        del self._processes[name]
        if process.descriptor >= 0:
            os.close(process.descriptor)
        if process.pid:
            self._groups.append(process.pid)
        return process.words.exit(process.pid, exit_code, error)

    def manual_restarts(self) -> list[str]:
        """Returns none: a process that a user starts is not supervised by this backend."""
        return []

    def remove(self, name: str) -> None:
        """Does nothing: a process that has ended holds no resources."""

    def close(self) -> None:
        """Kills the remaining processes and releases all resources."""
        for process in self._processes.values():
            if process.pid:
                kill_group(process.pid)
        self._zygote.close()
        for process in self._processes.values():
            if process.descriptor >= 0:
                os.close(process.descriptor)
            if process.pid:
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, 0)
        set_subreaper(self._was_subreaper)
