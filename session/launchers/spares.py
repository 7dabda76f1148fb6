"""Spare processes, forked before the zygote imports torch, that become light components later.

Each imports its module while the zygote goes on, so that no run waits for the import. A process
forked after the import of torch would have it in its memory; these components never use it.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from session.launchers.forker import Lines, run_child


class Spares:
    """The waiting spare processes; lives inside the zygote.

    Args:
        forget: closes in a child the descriptors that belong to the zygote.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._waiting: dict[str, tuple[int, Lines]] = {}

    def add(self, module: str) -> None:
        """Forks a process that will run ``module.main``."""
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            self._forget()
            self.forget()
            ours.close()
            _wait(module, Lines(theirs))
        theirs.close()
        self._waiting[module] = (pid, Lines(ours))

    def use(self, module: str, argv: list[str], stderr: str) -> int:
        """Lets the spare process of a module run; returns its process id.

        Raises:
            KeyError: it has been used already.
        """
        pid, lines = self._waiting.pop(module)
        lines.send({"argv": argv, "stderr": stderr})
        lines.stream.close()
        return pid

    def forget(self) -> None:
        """Closes the connections to them; they end, unless another process holds a copy."""
        for _, lines in self._waiting.values():
            lines.stream.close()

    def close(self) -> None:
        """Ends those that were never used."""
        self.forget()
        for pid, _ in self._waiting.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._waiting.clear()


def _wait(module: str, lines: Lines) -> NoReturn:
    """Imports the module in the child, then waits for the order or the end of the zygote."""
    # No log file is set yet: run_child repeats the import and reports the error.
    with suppress(Exception):
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    order = lines.wait()
    lines.stream.close()
    if order is None:
        os._exit(0)
    run_child(module, **order)
