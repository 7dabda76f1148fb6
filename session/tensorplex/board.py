"""TensorBoard as a component: runs its program as a child process, with pages of the run."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys

from session.errors import UsageError
from session.process.context import Context
from session.process.service import QuietPeriod, Service

_HOST = "127.0.0.1"
_USUAL_PORT = 6006
# The page with the layout of a run, on which the greedy return comes first.
_PAGE = "#custom_scalars"
_RESTART_SECONDS = 30.0
_STOP_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


class Board(Service):
    """Serves ``tensorboard/`` of the run folder; the address is reported as an event.

    Raises:
        UsageError: the component has no run folder to show.
    """

    def __init__(self, context: Context) -> None:
        if context.folder is None:
            raise UsageError("tensorboard shows the run folder: start it with --folder")
        self.port = _free_port()
        self._context = context
        self._logdir = context.folder.tensorboard
        self._scratch = self._logdir / ".program"
        self._ending = QuietPeriod(context)
        self._process = self._start()
        self._started = context.clock.now()
        context.event("tensorboard", f"http://{_HOST}:{self.port}/{_PAGE}")

    def tick(self) -> bool:
        """Restarts the program if it has ended, at most every 30 s."""
        ended = self._process.poll()
        if ended is not None and self._context.clock.now() - self._started > _RESTART_SECONDS:
            self._context.log.warning("tensorboard ended with %d and is started again", ended)
            self._process = self._start()
            self._started = self._context.clock.now()
        return False

    def drain(self) -> None:
        self._ending.drain()

    @property
    def done(self) -> bool:
        """True after a drain or when the run is over."""
        return self._ending.done

    def close(self) -> None:
        """Ends the program."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        # A program that is stopped while it starts leaves temporary files; TMPDIR is a folder that
        # can be removed as a whole.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        module = "session.tensorplex.board_server"
        command = [sys.executable, "-P", "-m", module, "--logdir", str(self._logdir)]
        return subprocess.Popen(
            [*command, "--host", _HOST, "--port", str(self.port)],
            env={**os.environ, "TMPDIR": str(self._scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _end_with_parent() -> None:
    """Runs in the child: makes the kernel stop it when the component dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    """Returns the usual port of TensorBoard if it is free, else any free port."""
    for port in (_USUAL_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UsageError(f"no free port on {_HOST} for tensorboard")
