"""Fork servers: warm processes that have imported slow modules and fork components.

The light server forks components that need no torch; it is itself forked from the heavy server
before that imports torch, so that its components do not have torch in their memory. A server has no
thread, no ZeroMQ context and no CUDA state, so that its children start clean.

A server forks twice: its grandchild becomes a child of the supervisor, a subreaper, at once. The
supervisor waits for all components in one way, and a server may die without effect on them.

Lines of JSON go over a socket. To a server:

    {"spawn": {"name", "module", "argv", "stderr"}}  fork a process that runs module.main(argv)
    {"guard": pid}                                   kill it if it outlives the supervisor
    {"removes": path}                                a folder to remove if the supervisor dies
    {"run": path}                                    the same of the sockets of a run folder

From it:

    {"ready": pid}                                   all modules are imported
    {"failed": error}                                they are not, and never will be
    {"spawned": name, "pid": pid}                    0: it could not be forked

The end of the socket means that the supervisor has died. Processes that have not ended a few
seconds later are killed: a component that hangs does not notice the end of its supervisor.

The supervisor's side is ``fork_client.py``. The command line of a process is
``python -P -m session.launchers.fork_server SHARED FD:MODULES...``, with modules separated by
commas: it imports the shared ones, then forks itself for all servers but the last.
"""

from __future__ import annotations

import faulthandler
import gc
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from setproctitle import setproctitle

from session.folder import RunFolder

# Longer than components need to notice the end of their supervisor and to drain.
_GUARD_SECONDS = 3.0
_CHUNK_BYTES = 1 << 16


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
        while not self.closed and readable(self.stream.fileno(), timeout_seconds):
            try:
                chunk = self.stream.recv(_CHUNK_BYTES)
            except ConnectionError:
                chunk = b""
            self.closed = not chunk
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            messages += map(json.loads, lines)
            timeout_seconds = 0.0
        return messages


def readable(descriptor: int, timeout_seconds: float | None) -> bool:
    """Waits until a descriptor can be read; returns False after the timeout, None: no limit."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(None if timeout_seconds is None else timeout_seconds * 1000))


class _Server:
    """The work of a fork server, inside its process.

    Args:
        lines: connection to the supervisor.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        # Process id -> pidfd: unlike a process id it never means another process.
        self._guarded: dict[int, int] = {}
        self._removes = self._run = ""

    def run(self) -> None:
        """Forks until the supervisor ends; then waits for the processes or kills them."""
        while not self._lines.closed:
            messages = self._lines.receive(None)
            self._fork([message["spawn"] for message in messages if "spawn" in message])
            for message in messages:
                self._removes = message.get("removes", self._removes)
                self._run = message.get("run", self._run)
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
        list(self._pop_ended(0.0))
        if pid not in self._guarded:
            with suppress(ProcessLookupError):
                self._guarded[pid] = os.pidfd_open(pid)

    def _pop_ended(self, timeout_seconds: float) -> Iterator[int]:
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
            for pid in self._pop_ended(left):
                # Also what it has started.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        for pid, descriptor in self._guarded.items():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)
        if self._removes:
            shutil.rmtree(self._removes, ignore_errors=True)
        if self._run:
            RunFolder(self._run).remove_sockets()


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
        # A crash leaves the stack of each thread there.
        faulthandler.enable(2)
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
