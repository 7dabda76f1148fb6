"""A warm process that has imported what is slow to import, and forks components from itself.

It has no thread, no ZeroMQ context and no CUDA state, so that what it forks begins clean. The
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
    """A pipe whose writing end only this process holds: components end when it closes."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def environment(self) -> dict[str, str]:
        """The variables of this process, and which descriptor is the lifeline."""
        return {**os.environ, LIFELINE: str(self.reader)}

    def close(self) -> None:
        """Lets go of both ends."""
        for descriptor in (self.reader, self._writer):
            with suppress(OSError):
                os.close(descriptor)


class Zygote:
    """The zygote as its supervisor sees it.

    Args:
        preload: modules that it imports before it forks anybody; ``spare:MODULE`` among them says
            that a spare process for a light component is forked at that point.

    Attributes:
        lifeline: ends all components when this process ends.
        spares: modules whose spare process has not been used yet.
        ready: it has imported them.
        error: why it never will; empty while it may, and when it was killed.
        buried: it has died, and has not been started again.
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
        """Its process."""
        return self._process.pid

    @property
    def dead(self) -> bool:
        """True once it can fork nobody any more; all its reports have been received then."""
        return self._lines.closed and not self._backlog

    def fileno(self) -> int:
        """A descriptor that can be read when it has something to report."""
        return self._lines.stream.fileno()

    def spawn(self, name: str, module: str, argv: Sequence[str], stderr: str) -> None:
        """Asks for a child that runs ``module.main(argv)``; ``spawned`` and ``exited`` follow.

        Args:
            name: what the reports call it.
            module: its entry module.
            argv: arguments of its ``main``.
            stderr: file to which standard output and standard error are appended.
        """
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self._lines.send({"spawn": child})

    def use_spare(self, name: str, module: str, argv: Sequence[str], stderr: str) -> None:
        """As :meth:`spawn`, but the process is there already.

        Raises:
            KeyError: the spare process of this module has been used.
        """
        self.spares.remove(module)
        child = {"name": name, "module": module, "argv": list(argv), "stderr": stderr}
        self._lines.send({"use": child})

    def guard(self, pid: int) -> None:
        """Has it watch over a process that it has not forked, should this one die."""
        self._lines.send({"guard": pid})

    def remove_at_end(self, sockets: str) -> None:
        """Has it remove the folder of the ipc sockets, should this process die."""
        self._sockets = sockets
        self._lines.send({"sockets": sockets})

    def receive(self) -> list[dict[str, Any]]:
        """What it has reported of its children (``spawned``, ``exited``), without waiting."""
        reports, self._backlog = self._backlog, []
        for report in self._lines.receive():
            self.ready |= "ready" in report
            self.error = report.get("failed", self.error)
            if "spawned" in report or "exited" in report:
                reports.append(report)
        return reports

    def last_words(self) -> str:
        """Why a dead one died, in one line."""
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
            DeadlineError: it took too long; it has been killed.
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
        """Starts it again after its death; its children live on and are no longer its own."""
        self.reap()
        # Only a start has to be fast.
        self._open(self._preload)

    def reap(self) -> None:
        """Waits for the end of a dead one: from then on its children are this process's own."""
        self._shut()
        self.spares.clear()
        self.buried = True

    def kill(self) -> None:
        """Ends it at once, its children not."""
        self._process.kill()

    def close(self) -> None:
        """Ends it; children that are left are killed by it a few seconds later."""
        self._shut()
        self._said.close()
        self.lifeline.close()

    def _shut(self) -> None:
        if not self._lines.closed:
            self._backlog = self.receive()
        if not self.ready:
            # It still imports: there is no component yet that it must outlive.
            self._process.kill()
        self._lines.stream.close()
        self._lines.closed = True
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(argv: Sequence[str]) -> NoReturn:
    """Imports what is slow, then serves; never returns."""
    lines = Lines(socket.socket(fileno=int(argv[0])))
    setproctitle(" ".join(["python", "-P", "-m", "session.launchers.zygote", *argv]))
    start = time.monotonic()
    # It would look through what is imported again and again: a sixth of the time.
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
    # What was imported stays where it is: pages that the collector does not touch stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()
    lines.send({"ready": round(time.monotonic() - start, 3)})
    Forker(lines, spares).run()
    spares.close()
    # There is nothing to tidy up, and much to take apart: torch would need half a second.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
