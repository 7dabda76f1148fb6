"""The end of a process, and why it came: what it said, what it wrote, what killed it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from session.component import Component
from session.folder import RunFolder
from session.heartbeat import read_beat
from session.launchers.instruction import exit_error
from session.launchers.out_of_memory import OutOfMemory

_DETAILS_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one process.

    Args:
        name: of its component.
        exit_code: below 0 the signal that ended it.
        error: why it ended, in one line.
        details: what it said on its standard output and standard error.
    """

    name: str
    exit_code: int
    error: str
    details: str = ""


class Backend(Protocol):
    """What the components of a run live in: processes of this machine, or windows of tmux.

    Attributes:
        keep_warm: further components may have to be started soon.
    """

    keep_warm: bool

    def pid(self, name: str) -> int:
        """The process of a component, 0 where there is none."""
        ...

    def start(self, component: Component) -> None:
        """Starts a component."""
        ...

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL goes to all that the process has started, too."""
        ...

    def wait_on(self) -> Sequence[int]:
        """Descriptors that can be read when there is something to hear."""
        ...

    def poll(self) -> list[Exit]:
        """The processes that have ended since the last call, without waiting."""
        ...

    def manual_restarts(self) -> list[str]:
        """Components of which somebody has started a process by hand since the last call."""
        ...

    def remove(self, name: str) -> None:
        """A component has ended and is not wanted any more: what it lived in may go."""
        ...

    def close(self) -> None:
        """Gives back what it holds; whoever still lives is killed."""
        ...


class StderrTail:
    """What a process says on its standard error, from its start on.

    Args:
        folder: the run folder.
        name: of the component.
        memory: tells whether a process was killed for want of memory.
    """

    def __init__(self, folder: RunFolder, name: str, memory: OutOfMemory) -> None:
        self._memory = memory
        self.path: Path = folder.logs / f"{name}.err"
        self._alive = folder.alive
        self._name = name
        self._output_bytes = self.path.stat().st_size if self.path.exists() else 0

    def exit(self, pid: int, exit_code: int, error: str = "") -> Exit:
        """The end of that process, with the reason that it left.

        Args:
            pid: the process.
            exit_code: below 0 the signal that ended it.
            error: why it ended, where that is known better.
        """
        details = self._details()
        return Exit(self._name, exit_code, error or self._why(pid, exit_code, details), details)

    def _details(self) -> str:
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._output_bytes, end - _DETAILS_BYTES))
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _why(self, pid: int, exit_code: int, details: str) -> str:
        if exit_code == -signal.SIGKILL and self._memory.took_one():
            return f"{exit_error(exit_code)}: out of memory, ended by the kernel"
        if exit_code < 0:
            return exit_error(exit_code)
        beat = read_beat(self._alive, self._name)
        if beat is not None and beat.pid == pid and beat.state == "failed" and beat.doing:
            return beat.doing
        return details.splitlines()[-1] if details else exit_error(exit_code)
