"""Processes that are forked before the zygote imports torch, and become light components later.

Each imports its module while the zygote goes on, so that no run waits for that. What is forked
after torch would have it in its memory, and these components never use it.
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
    """Those that wait; lives inside the zygote.

    Args:
        forget: closes, in a child, what is the zygote's own.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._waiting: dict[str, tuple[int, Lines]] = {}

    def add(self, module: str) -> None:
        """Forks one that will run ``module.main``."""
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
        """Lets the one of a module run; returns its process.

        Raises:
            KeyError: it has been used already.
        """
        pid, lines = self._waiting.pop(module)
        lines.send({"argv": argv, "stderr": stderr})
        lines.stream.close()
        return pid

    def forget(self) -> None:
        """Closes the way to them; they end, unless another process has it, too."""
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
    """Runs in the child: imports, and waits for the order or for the end of the zygote."""
    # An error is told when somebody listens: the import is tried again then.
    with suppress(Exception):
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    order = lines.wait()
    lines.stream.close()
    if order is None:
        os._exit(0)
    run_child(module, **order)
