"""Forks components and watches their processes; runs inside the zygote.

Lines of JSON go over a socket. To the zygote:

    {"spawn": {"name", "module", "argv", "stderr"}}  fork a child that runs module.main(argv)
    {"use": {"name", "module", "argv", "stderr"}}    let the spare process of that module run it
    {"guard": pid}                                   watch a child process of the supervisor
    {"sockets": path}                                a folder to remove if the supervisor dies

From it:

    {"ready": seconds}                               all is imported
    {"failed": error}                                it is not, and never will be
    {"spawned": name, "pid": pid}
    {"exited": name, "pid": pid, "status": code}     below 0: the signal that ended it

When the socket closes, the supervisor has died. Processes that have not ended a few seconds later
are killed: a component that hangs does not notice the end of its supervisor.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from setproctitle import setproctitle

if TYPE_CHECKING:
    from session.launchers.spares import Spares

# Longer than components need to notice the end of their supervisor and to drain.
_GUARD_SECONDS = 3.0
_CHUNK_BYTES = 1 << 16


class Lines:
    """Messages as lines of JSON on a socket."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.closed = False
        self._rest = b""

    def send(self, message: dict[str, Any]) -> bool:
        """Sends one message; returns False if the peer has closed the socket."""
        try:
            self.stream.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yields the messages that have arrived, without waiting; updates :attr:`closed`."""
        while not self.closed and select.select([self.stream], [], [], 0)[0]:
            yield from self._read()

    def wait(self) -> dict[str, Any] | None:
        """Waits for one message; returns None once the peer has closed the socket."""
        while not self.closed:
            for message in self._read():
                return message
        return None

    def _read(self) -> Iterator[dict[str, Any]]:
        try:
            chunk = self.stream.recv(_CHUNK_BYTES)
        except ConnectionError:
            chunk = b""
        self.closed = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        yield from map(json.loads, lines)


class Forker:
    """Forks children and watches their processes: the work of a zygote.

    Args:
        lines: connection to the supervisor.
        spares: processes that were forked earlier.
    """

    def __init__(self, lines: Lines, spares: Spares) -> None:
        self._lines = lines
        self._spares = spares
        self._poller = select.poll()
        self._poller.register(lines.stream, select.POLLIN)
        # Pidfds: readable once the process has ended; unlike pids they never mean another process.
        self._watched: dict[int, tuple[int, str | None]] = {}
        self._sockets = ""

    def run(self) -> None:
        """Forks and reports until the supervisor ends; then waits for children or kills them."""
        while not self._lines.closed:
            self._wait(None)
            for message in self._lines.receive():
                self._obey(message)
        self._outlive()

    def _wait(self, timeout_seconds: float | None) -> None:
        timeout = None if timeout_seconds is None else timeout_seconds * 1000
        for descriptor, _ in self._poller.poll(timeout):
            if descriptor in self._watched:
                self._reap(descriptor)

    def _obey(self, message: dict[str, Any]) -> None:
        if "spawn" in message:
            self._spawn(**message["spawn"])
        if "use" in message:
            self._use(**message["use"])
        if "guard" in message:
            with suppress(ProcessLookupError):
                self._watch(message["guard"], None)
        if "sockets" in message:
            self._sockets = message["sockets"]

    def _spawn(self, name: str, module: str, argv: list[str], stderr: str) -> None:
        pid = os.fork()
        if pid == 0:
            self._forget_everything()
            run_child(module, argv, stderr)
        self._watch(pid, name)
        self._lines.send({"spawned": name, "pid": pid})

    def _use(self, name: str, module: str, argv: list[str], stderr: str) -> None:
        pid = self._spares.use(module, argv, stderr)
        self._watch(pid, name)
        self._lines.send({"spawned": name, "pid": pid})

    def _forget_everything(self) -> None:
        """Closes in a child the descriptors that belong to the zygote."""
        for descriptor in self._watched:
            os.close(descriptor)
        self._lines.stream.close()
        self._spares.forget()

    def _watch(self, pid: int, name: str | None) -> None:
        descriptor = os.pidfd_open(pid)
        self._watched[descriptor] = (pid, name)
        self._poller.register(descriptor, select.POLLIN)

    def _reap(self, descriptor: int) -> None:
        pid, name = self._watched.pop(descriptor)
        self._poller.unregister(descriptor)
        os.close(descriptor)
        if name is not None:
            # Before it is reaped: until then no other process can have its pid.
            kill_group(pid)
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            self._lines.send({"exited": name, "pid": pid, "status": code})

    def _outlive(self) -> None:
        deadline = time.monotonic() + _GUARD_SECONDS
        while self._watched and time.monotonic() < deadline:
            self._poller.modify(self._lines.stream, 0)
            self._wait(0.1)
        for descriptor, (pid, name) in list(self._watched.items()):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if name is not None:
                kill_group(pid)
        if self._sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)


def kill_group(pid: int) -> None:
    """Kills a process that leads its own process group, and all processes of that group."""
    with suppress(PermissionError):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            # Just forked: it has not called setsid yet, so it leads no group.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run_child(module: str, argv: list[str], stderr: str) -> NoReturn:
    """Runs in this process what ``python -P -m module argv...`` would run; never returns."""
    code = 1
    try:
        os.setsid()
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
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1
