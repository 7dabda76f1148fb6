"""Fork servers: warm processes that have imported slow modules and fork components.

The light server forks components that need no torch; it is itself forked from the heavy server
before that imports torch, so that its components do not have torch in their memory. A server has no
thread, no ZeroMQ context and no CUDA state, so that its children start clean.

A server forks twice: its grandchild becomes a child of the supervisor, a subreaper, at once. The
supervisor waits for all components in one way, and a server may die without effect on them.

Lines of JSON go over a socket. To a server:

    {"spawn": {"name", "module", "argv", "stderr"}}  fork a process that runs module.main(argv)
    {"guard": pid}                                   kill it if it outlives the supervisor
    {"sockets": path}                                a folder to remove if the supervisor dies

From it:

    {"ready": pid}                                   all modules are imported
    {"failed": error}                                they are not, and never will be
    {"spawned": name, "pid": pid}                    0: it could not be forked

The end of the socket means that the supervisor has died. Processes that have not ended a few
seconds later are killed: a component that hangs does not notice the end of its supervisor.

The supervisor's side is :class:`ForkServers`. The command line of a process is
``python -P -m session.launchers.fork_server SHARED FD:MODULES...``, with modules separated by
commas: it imports the shared ones, then forks itself for all servers but the last.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from setproctitle import setproctitle

from session.errors import DeadlineError, RunError
from session.launchers.subreaper import group_lives, kill_group, set_subreaper
from session.process.component import LIFELINE

# A process that forks must not have started a thread pool.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Longer than components need to notice the end of their supervisor and to drain.
_GUARD_SECONDS = 3.0
_CHUNK_BYTES = 1 << 16


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


class Lines:
    """Messages as lines of JSON on a socket."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.closed = False
        self._rest = b""

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; a peer that has closed the socket does not get it."""
        with suppress(OSError):
            self.stream.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout_seconds: float | None = 0.0) -> list[dict[str, Any]]:
        """Returns the messages that have arrived; updates :attr:`closed`.

        Args:
            timeout_seconds: maximum wait for the first one; None: no limit.
        """
        messages: list[dict[str, Any]] = []
        while not self.closed and _readable(self.stream.fileno(), timeout_seconds):
            try:
                chunk = self.stream.recv(_CHUNK_BYTES)
            except ConnectionError:
                chunk = b""
            self.closed = not chunk
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            messages += map(json.loads, lines)
            timeout_seconds = 0.0
        return messages


class ForkServer:
    """One fork server as its supervisor sees it.

    Args:
        lines: connection to it.
        group: its process group.

    Attributes:
        pid: its process id, 0 until it is ready.
        error: import error, after which it never gets ready; empty otherwise.
    """

    def __init__(self, lines: Lines, group: int) -> None:
        self.lines = lines
        self.group = group
        self.pid = 0
        self.error = ""

    @property
    def ready(self) -> bool:
        """True once it has imported all modules."""
        return self.pid > 0

    def receive(self, timeout_seconds: float = 0.0) -> dict[str, int]:
        """Returns name -> process id, 0 if it could not be forked, of new processes."""
        spawned = {}
        for report in self.lines.receive(timeout_seconds):
            self.pid = report.get("ready", self.pid)
            self.error = report.get("failed", self.error)
            if "spawned" in report:
                spawned[report["spawned"]] = report["pid"]
        return spawned


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
        self._sockets = ""
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
            server.lines.send({"sockets": self._sockets})
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
            name: of the process in reports.
            module: its entry module.
            argv: arguments of its ``main``.
            stderr: file to which standard output and standard error are appended.
            heavy: from the server that has imported torch.
        """
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self.server(heavy).lines.send({"spawn": child})

    def guard(self, pids: Sequence[int]) -> None:
        """Sets the processes that the servers kill if they outlive this process."""
        for pid in sorted({*pids} - {*self._guarded}):
            for server in self._servers.values():
                server.lines.send({"guard": pid})
        self._guarded = list(pids)

    def remove_at_end(self, sockets: str) -> None:
        """Makes the servers remove the folder of ipc sockets, if this process dies."""
        self._sockets = sockets
        for server in self._servers.values():
            server.lines.send({"sockets": sockets})

    def call(
        self,
        module: str,
        argv: Sequence[str],
        stderr: str,
        *,
        timeout_seconds: float = 300.0,
    ) -> int:
        """Runs ``module.main(argv)`` in a process of the heavy server; returns its exit code.

        Raises:
            DeadlineError: the process exceeded the deadline and was killed.
            RunError: the server died.
        """
        deadline = time.monotonic() + timeout_seconds
        self.spawn("call", module, argv, stderr, heavy=True)
        server, pid = self.server(True), None
        while pid is None and time.monotonic() < deadline:
            pid = server.receive(deadline - time.monotonic()).get("call")
            if pid is None and server.lines.closed:
                raise RunError(self.remove_dead(True))
        if pid == 0:
            raise RunError(f"{module} cannot be forked")
        if pid is not None:
            descriptor, ended = os.pidfd_open(pid), False
            try:
                ended = _readable(descriptor, max(0.0, deadline - time.monotonic()))
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


class _Server:
    """The work of a fork server, inside its process.

    Args:
        lines: connection to the supervisor.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        # Process id -> pidfd: unlike a process id it never means another process.
        self._guarded: dict[int, int] = {}
        self._sockets = ""

    def run(self) -> None:
        """Forks until the supervisor ends; then waits for the processes or kills them."""
        while not self._lines.closed:
            messages = self._lines.receive(None)
            self._fork([message["spawn"] for message in messages if "spawn" in message])
            for message in messages:
                self._sockets = message.get("sockets", self._sockets)
                if "guard" in message:
                    self._guard(message["guard"])
        self._outlive()

    def _fork(self, children: list[dict[str, Any]]) -> None:
        pids = _fork_orphans([partial(self._run_child, child) for child in children])
        for pid in pids:
            self._guard(pid)
        pids += [0] * (len(children) - len(pids))
        for child, pid in zip(children, pids, strict=True):
            self._lines.send({"spawned": child["name"], "pid": pid})

    def _run_child(self, child: dict[str, Any]) -> NoReturn:
        # An inherited end of the socket would hide the death of the server from the supervisor.
        for descriptor in self._guarded.values():
            os.close(descriptor)
        self._lines.stream.close()
        run_child(child["module"], child["argv"], child["stderr"])

    def _guard(self, pid: int) -> None:
        list(self._ended(0.0))
        if pid not in self._guarded:
            with suppress(ProcessLookupError):
                self._guarded[pid] = os.pidfd_open(pid)

    def _ended(self, timeout_seconds: float) -> Iterator[int]:
        """Forgets the guarded processes that have ended, and yields their process ids."""
        poller = select.poll()
        for descriptor in self._guarded.values():
            poller.register(descriptor, select.POLLIN)
        ended = {descriptor for descriptor, _ in poller.poll(timeout_seconds * 1000)}
        for pid, descriptor in list(self._guarded.items()):
            if descriptor in ended:
                os.close(self._guarded.pop(pid))
                yield pid

    def _outlive(self) -> None:
        deadline = time.monotonic() + _GUARD_SECONDS
        while self._guarded and (left := deadline - time.monotonic()) > 0:
            for pid in self._ended(left):
                # Also what it has started.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        for pid, descriptor in self._guarded.items():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)
        if self._sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)


def _fork_orphans(jobs: Sequence[Callable[[], NoReturn]]) -> list[int]:
    """Runs each job in a grandchild, which loses its parent; returns their process ids in order.

    Those that cannot be forked are missing at the end.
    """
    if not jobs:
        return []
    reader, writer = os.pipe()
    try:
        # One for all jobs: a fork of a large process takes milliseconds.
        middle = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return []
    if middle == 0:
        try:
            os.close(reader)
            for job in jobs:
                pid = os.fork()
                if pid == 0:
                    os.close(writer)
                    job()
                # By a pipe: waitpid of the middle process tells nothing of its children.
                os.write(writer, b"%d\n" % pid)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pids:
        grandchildren = [int(pid) for pid in pids]
    os.waitpid(middle, 0)
    return grandchildren


def _readable(descriptor: int, timeout_seconds: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_seconds is None else timeout_seconds * 1000))


def run_child(module: str, argv: list[str], stderr: str) -> NoReturn:
    """Runs in this process what ``python -P -m module argv...`` would run; never returns."""
    code = 1
    try:
        # A group of its own: killed with all that it has started, and out of reach of Ctrl-C.
        os.setsid()
        # As in a new interpreter: a fork inherits handlers and ignored signals.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
        output = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        setproctitle(" ".join(["python", "-P", "-m", module, *argv]))
        sys.argv = [module, *argv]
        code = importlib.import_module(module).main(argv)
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # os._exit does not flush; a normal exit would run the cleanup of the server.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def main(argv: Sequence[str]) -> NoReturn:
    """Imports the shared modules, forks one process for each further server, and serves."""
    shared, *words = argv
    setproctitle(" ".join(["python", "-P", "-m", "session.launchers.fork_server", *argv]))
    # The collector would scan the imported modules repeatedly: a sixth of the time.
    gc.disable()
    connections = [Lines(socket.socket(fileno=int(word.partition(":")[0]))) for word in words]
    modules = [word.partition(":")[2] for word in words]
    _import(shared, connections)
    while len(connections) > 1:
        lines, names = connections.pop(0), modules.pop(0)
        _fork_orphans([partial(_serve, lines, names, connections)])
        lines.stream.close()
    _serve(connections[0], modules[0], [])


def _serve(lines: Lines, modules: str, others: Sequence[Lines]) -> NoReturn:
    for other in others:
        other.stream.close()
    _import(modules, [lines])
    # Freezes imported objects: memory pages that the collector does not touch stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()
    lines.send({"ready": os.getpid()})
    _Server(lines).run()
    # Skips interpreter shutdown: torch would need half a second, and nothing needs cleanup.
    os._exit(0)


def _import(modules: str, connections: Sequence[Lines]) -> None:
    for name in filter(None, modules.split(",")):
        try:
            importlib.import_module(name)
        except Exception as error:
            for lines in connections:
                lines.send({"failed": f"cannot import {name}: {error}"})
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
