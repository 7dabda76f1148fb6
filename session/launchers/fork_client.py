"""The supervisor's side of the fork servers: starts them, requests and ends processes."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from session.errors import DeadlineError, RunError
from session.folder import RunFolder
from session.launchers.fork_server import Lines, readable
from session.process.component import LIFELINE

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def set_subreaper(on: bool) -> bool:
    """Makes this process adopt the orphans of its descendants, or not; returns the old setting."""
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int(0)
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def reap(pid: int) -> int | None:
    """Returns the exit code of a child, None while it lives; then kills the rest of its group."""
    try:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Before it is reaped: until then no other process can have its pid.
        kill_group(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        # Other code of this process has reaped it: the exit code is lost.
        return 1


def group_lives(group: int) -> bool:
    """Reaps children of a process group without waiting; returns True if some still live."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_group(pid: int) -> None:
    """Kills a process that leads its own process group, and all processes of that group."""
    with suppress(PermissionError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            # Just forked: it has not called setsid yet, so it leads no group.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# A process that forks must not have started a thread pool.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Preload:
    """Modules that fork servers import before they fork.

    Not a user's own modules: their import may have side effects.

    Args:
        shared: imported once for both servers.
        light: further ones of the light server.
        heavy: further ones of the heavy server, such as torch.
    """

    shared: Sequence[str] = ()
    light: Sequence[str] = ()
    heavy: Sequence[str] = ()


class ForkServer:
    """One fork server as its supervisor sees it.

    Args:
        lines: connection to it.
        group: process group.

    Attributes:
        pid: process id, 0 until it is ready.
        error: import error, after which it never gets ready; empty otherwise.
    """

    def __init__(self, lines: Lines, group: int) -> None:
        self.lines = lines
        self.group = group
        self.pid = 0
        self.error = ""
        self._unread: dict[str, int] = {}

    @property
    def ready(self) -> bool:
        """True once it has imported all modules."""
        return self.pid > 0

    def receive(self, timeout_seconds: float = 0.0) -> dict[str, int]:
        """Returns name -> process id, 0 if it could not be forked, of new processes."""
        spawned, self._unread = self._unread, {}
        for report in self.lines.receive(timeout_seconds):
            self.pid = report.get("ready", self.pid)
            self.error = report.get("failed", self.error)
            if "spawned" in report:
                spawned[report["spawned"]] = report["pid"]
        return spawned

    def receive_one(self, name: str, timeout_seconds: float) -> int | None:
        """Returns the process id of one new process, None if it is not reported yet.

        Reports of other processes are kept for :meth:`receive`.
        """
        spawned = self.receive(timeout_seconds)
        pid = spawned.pop(name, None)
        self._unread = spawned
        return pid


class ForkServers:
    """The light and the heavy fork server of one run; this process becomes a subreaper.

    Both start at once, and return to the caller while they still import. One that has died is
    started again when it is needed.

    Args:
        preload: modules that they import before they fork.
    """

    def __init__(self, preload: Preload) -> None:
        self._preload = preload
        self._reader, self._writer = os.pipe()
        self._guarded: list[int] = []
        self._removes: dict[str, str] = {}
        self._groups: list[int] = []
        self._servers: dict[bool, ForkServer] = {}
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the servers
        self._was_subreaper = set_subreaper(True)
        self._open(False, True)

    def _open(self, *kinds: bool) -> None:
        words, pairs = [",".join(self._preload.shared)], {}
        for heavy in kinds:
            ours, theirs = pairs[heavy] = socket.socketpair()
            modules = self._preload.heavy if heavy else self._preload.light
            words.append(f"{theirs.fileno()}:{','.join(modules)}")
        descriptors = [theirs.fileno() for _, theirs in pairs.values()]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "session.launchers.fork_server", *words],
            # Components inherit the lifeline and end when its write end closes.
            env={**os.environ, **ONE_THREAD, LIFELINE: str(self._reader)},
            pass_fds=(*descriptors, self._reader),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            # A group of its own: Ctrl-C in the terminal must reach only the supervisor.
            start_new_session=True,
        )
        # Reaped with its group; Popen must not wait for it as well.
        process.returncode = 0
        self._groups.append(process.pid)
        for heavy, (ours, theirs) in pairs.items():
            theirs.close()
            self._servers[heavy] = server = ForkServer(Lines(ours), process.pid)
            server.lines.send(self._removes)
            # A server that replaces a dead one guards the processes of that one, too.
            for pid in self._guarded:
                server.lines.send({"guard": pid})

    def server(self, heavy: bool) -> ForkServer:
        """Returns a server; starts it again if it has died."""
        if heavy not in self._servers:
            self._open(heavy)
        return self._servers[heavy]

    def living(self) -> dict[bool, ForkServer]:
        """Returns heavy or not -> server, of those that were not removed."""
        return dict(self._servers)

    def remove_dead(self, heavy: bool) -> str:
        """Forgets a server that has died; returns the cause in one line."""
        server = self._servers.pop(heavy)
        server.lines.stream.close()
        return self._death(server)

    def _death(self, server: ForkServer) -> str:
        # The last line is the error if an import failed.
        self._output.seek(0)
        lines = self._output.read().strip().splitlines()
        return f"the fork server died: {server.error or (lines[-1] if lines else 'killed')}"

    def reap(self) -> None:
        """Reaps servers that have ended, without waiting."""
        self._groups = [group for group in self._groups if group_lives(group)]

    def spawn(
        self, name: str, module: str, argv: Sequence[str], stderr: str, *, heavy: bool
    ) -> None:
        """Requests a process that runs ``module.main(argv)``; its server reports its process id.

        Args:
            name: name of the process in reports.
            module: entry module.
            argv: arguments of its ``main``.
            stderr: file to which standard output and standard error are appended.
            heavy: True for the server that has imported torch.
        """
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self.server(heavy).lines.send({"spawn": child})

    def guard(self, pids: Sequence[int]) -> None:
        """Sets the processes that the servers kill if they outlive this process."""
        for pid in sorted({*pids} - {*self._guarded}):
            for server in self._servers.values():
                server.lines.send({"guard": pid})
        self._guarded = list(pids)

    def remove_at_end(self, folder: str) -> None:
        """Makes the servers remove a folder, in place of the one before, if this process dies."""
        self._remove({"removes": folder})

    def remove_sockets_at_end(self, run: RunFolder) -> None:
        """Makes them remove the sockets of a run, unless another launcher has gone on with it."""
        self._remove({"run": str(run.path.resolve())})

    def _remove(self, what: dict[str, str]) -> None:
        self._removes |= what
        for server in self._servers.values():
            server.lines.send(what)

    def call(
        self,
        module: str,
        argv: Sequence[str],
        stderr: str,
        *,
        timeout_seconds: float = 300.0,
    ) -> int:
        """Runs ``module.main(argv)`` in a process of the heavy server; returns its exit code.

        Other processes may be requested before; the server still reports them to their owner, as
        it does its own death.

        Raises:
            DeadlineError: the process exceeded the deadline and was killed.
            RunError: the server died.
        """
        deadline = time.monotonic() + timeout_seconds
        self.spawn("call", module, argv, stderr, heavy=True)
        server, pid = self.server(True), None
        while pid is None and time.monotonic() < deadline:
            pid = server.receive_one("call", deadline - time.monotonic())
            if pid is None and server.lines.closed:
                raise RunError(self._death(server))
        if pid == 0:
            raise RunError(f"{module} cannot be forked")
        if pid is not None:
            descriptor, ended = os.pidfd_open(pid), False
            try:
                ended = readable(descriptor, max(0.0, deadline - time.monotonic()))
            finally:
                os.close(descriptor)
                kill_group(pid)
                _, status = os.waitpid(pid, 0)
            if ended:
                return os.waitstatus_to_exitcode(status)
        raise DeadlineError(f"{module} did not end within {timeout_seconds:g} s")

    def kill(self, heavy: bool) -> None:
        """Kills a server, with the other one if both were started together."""
        with suppress(ProcessLookupError):
            os.killpg(self._servers[heavy].group, signal.SIGKILL)

    def close(self) -> None:
        """Ends the servers, once; what they have forked must have ended."""
        if self._output.closed:
            return
        for server in self._servers.values():
            server.lines.stream.close()
        self._servers.clear()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-group, 0):
                    pass
        self._groups.clear()
        self._output.close()
        for descriptor in (self._reader, self._writer):
            with suppress(OSError):
                os.close(descriptor)
        set_subreaper(self._was_subreaper)
