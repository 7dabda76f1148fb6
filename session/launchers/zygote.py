"""A warm process that has imported the slow modules and forks components from itself.

It has no thread, no ZeroMQ context and no CUDA state, so that its children start clean. The
supervisor's side is :class:`Zygote`; the process is ``python -P -m session.launchers.zygote``.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from setproctitle import setproctitle

from session.errors import DeadlineError, RunError
from session.launchers.forker import Forker, Lines, kill_group
from session.launchers.spares import Spares
from session.process import LIFELINE

# A process that forks must not have started a thread pool.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_SPARE = "spare:"
_CLOSE_SECONDS = 5.0


class Lifeline:
    """A pipe whose write end only this process holds: components end when it closes."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def environment(self) -> dict[str, str]:
        """Returns the environment of this process plus the file descriptor of the lifeline."""
        return {**os.environ, LIFELINE: str(self.reader)}

    def close(self) -> None:
        """Closes both ends."""
        for descriptor in (self.reader, self._writer):
            with suppress(OSError):
                os.close(descriptor)


class Zygote:
    """The zygote as its supervisor sees it.

    Args:
        preload: modules that it imports before it forks; at ``spare:MODULE`` among them it forks
            a spare process for a light component.

    Attributes:
        lifeline: ends all components when this process ends.
        spares: modules whose spare process has not been used yet.
        ready: it has imported all modules.
        error: import error, after which it never gets ready; empty otherwise.
        buried: it has died and was not started again.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.lifeline = Lifeline()
        self.error = ""
        self._preload = [word for word in preload if not word.startswith(_SPARE)]
        self._calls = 0
        self._backlog: list[dict[str, Any]] = []
        self._sockets = ""
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the zygote
        self._open(preload)

    @classmethod
    def start(cls, preload: Sequence[str] = ()) -> Zygote:
        """Starts the process and returns while it is still importing."""
        return cls(preload)

    def _open(self, words: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        self.spares = {word.removeprefix(_SPARE) for word in words if word.startswith(_SPARE)}
        self.ready = False
        self.buried = False
        self._lines = Lines(ours)
        command = [sys.executable, "-P", "-m", "session.launchers.zygote", str(theirs.fileno())]
        self._process = subprocess.Popen(
            [*command, *words],
            env={**self.lifeline.environment(), **ONE_THREAD},
            pass_fds=(theirs.fileno(), self.lifeline.reader),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        theirs.close()
        if self._sockets:
            self.remove_at_end(self._sockets)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def dead(self) -> bool:
        """True once it has ended and all its reports have been received."""
        return self._lines.closed and not self._backlog

    def fileno(self) -> int:
        """Returns a file descriptor that is readable when it has something to report."""
        return self._lines.stream.fileno()

    def spawn(self, name: str, module: str, argv: Sequence[str], stderr: str) -> None:
        """Requests a child that runs ``module.main(argv)``; it reports ``spawned`` and ``exited``.

        Args:
            name: of the child in reports.
            module: its entry module.
            argv: arguments of its ``main``.
            stderr: file to which standard output and standard error are appended.
        """
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self._lines.send({"spawn": child})

    def use_spare(self, name: str, module: str, argv: Sequence[str], stderr: str) -> None:
        """Like :meth:`spawn`, with a spare process instead of a new fork.

        Raises:
            KeyError: the spare process of this module has been used already.
        """
        self.spares.remove(module)
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self._lines.send({"use": child})

    def guard(self, pid: int) -> None:
        """Makes it end a process that it has not forked, if this process dies."""
        self._lines.send({"guard": pid})

    def remove_at_end(self, sockets: str) -> None:
        """Makes it remove the folder of ipc sockets, if this process dies."""
        self._sockets = sockets
        self._lines.send({"sockets": sockets})

    def receive(self) -> list[dict[str, Any]]:
        """Returns its new reports of children (``spawned``, ``exited``), without waiting."""
        reports, self._backlog = self._backlog, []
        for report in self._lines.receive():
            self.ready |= "ready" in report
            self.error = report.get("failed", self.error)
            if "spawned" in report or "exited" in report:
                reports.append(report)
        return reports

    def last_words(self) -> str:
        """Returns the cause of its death, in one line."""
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return self.error or (lines[-1] if lines else "killed")

    def call(
        self,
        module: str,
        argv: Sequence[str],
        stderr: str,
        *,
        timeout_seconds: float = 300.0,
    ) -> int:
        """Runs ``module.main(argv)`` in a child and waits; returns its exit code.

        Raises:
            DeadlineError: the child exceeded the deadline and was killed.
            RunError: the zygote died.
        """
        self._calls += 1
        name = f"call-{self._calls}"
        self.spawn(name, module, argv, stderr)
        deadline = time.monotonic() + timeout_seconds
        pid = 0
        try:
            while time.monotonic() < deadline:
                select.select([self], [], [], 0.5)
                for report in self.receive():
                    if report.get("exited") == name:
                        pid = 0
                        return int(report["status"])
                    if report.get("spawned") == name:
                        pid = report["pid"]
                    else:
                        self._backlog.append(report)
                if self._lines.closed:
                    raise RunError(f"the zygote died: {self.last_words()}")
            raise DeadlineError(f"{module} did not end within {timeout_seconds:g} s")
        finally:
            if pid:
                kill_group(pid)

    def restart(self) -> None:
        """Starts it again after its death; the old children live on, but are not its children."""
        self.reap()
        # Without spare processes: they only speed up the start of a run.
        self._open(self._preload)

    def reap(self) -> None:
        """Reaps the dead zygote; from then on this process is the parent of its children."""
        self._shut()
        self.spares.clear()
        self.buried = True

    def kill(self) -> None:
        """Kills it, but not its children."""
        self._process.kill()

    def close(self) -> None:
        """Ends it; it kills its remaining children a few seconds later."""
        self._shut()
        self._said.close()
        self.lifeline.close()

    def _shut(self) -> None:
        if not self._lines.closed:
            self._backlog = self.receive()
        if not self.ready:
            # It still imports: it has no components that it would have to guard.
            self._process.kill()
        self._lines.stream.close()
        self._lines.closed = True
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(argv: Sequence[str]) -> NoReturn:
    """Imports the slow modules, then serves; never returns."""
    lines = Lines(socket.socket(fileno=int(argv[0])))
    setproctitle(" ".join(["python", "-P", "-m", "session.launchers.zygote", *argv]))
    start = time.monotonic()
    # The collector would scan the imported modules repeatedly: a sixth of the time.
    gc.disable()
    spares = Spares(lines.stream.close)
    try:
        for name in argv[1:]:
            if name.startswith(_SPARE):
                spares.add(name.removeprefix(_SPARE))
            else:
                importlib.import_module(name)
    except Exception as error:
        lines.send({"failed": f"cannot import {name}: {error}"})
        raise
    # Freezes imported objects: memory pages that the collector does not touch stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()
    lines.send({"ready": round(time.monotonic() - start, 3)})
    Forker(lines, spares).run()
    spares.close()
    # Skips interpreter shutdown: torch would need half a second, and nothing needs cleanup.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
