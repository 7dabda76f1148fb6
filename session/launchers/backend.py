"""Interface of process backends, and the exit of a process with its cause, such as no memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from session.errors import START_AGAIN
from session.folder import RunFolder
from session.json_file import open_file
from session.launchers.instruction import exit_error
from session.launchers.memory_use import OutOfMemory
from session.process.component import Component
from session.process.heartbeat import Beat, State, read_beat

_DETAILS_BYTES = 1 << 14
_WORDS_LIMIT = 500
# Signals with which a process ends itself, for example at an assertion of libzmq.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# Python's report of such a signal, with the stack of each thread.
_STACKS = "Fatal Python error:"


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of one process.

    Args:
        name: name of its component.
        exit_code: below 0 the signal that ended it.
        error: the cause, in one line.
        details: the last 16 KiB of its standard output and standard error.
    """

    name: str
    exit_code: int
    error: str
    details: str = ""


class Backend(Protocol):
    """Runs the components of one run: in this thread, as processes, or in windows of tmux."""

    def pid(self, name: str) -> int:
        """Returns the process id of a component, 0 if it has no process."""

    def start(self, component: Component) -> None:
        """Starts a component."""

    def signal(self, name: str, number: int) -> None:
        """Sends a signal; SIGKILL also goes to all processes that it has started."""

    def wait_on(self) -> Sequence[int]:
        """Returns file descriptors that are readable when :meth:`poll` has something to return."""

    def poll(self) -> list[Exit]:
        """Returns the processes that have ended since the last call, without waiting."""

    def manual_restarts(self) -> list[str]:
        """Returns the components that a user has restarted by hand since the last call."""
        return []

    def remove(self, name: str) -> None:
        """Releases what is left of a component that has ended and is not wanted any more."""
        return  # nothing is left of most

    def close(self) -> None:
        """Kills the remaining processes and releases all resources."""


class StderrTail:
    """Output of one process on its standard error, from its start on.

    Args:
        folder: the run folder.
        name: name of the component.
        memory: counts kills by the out-of-memory killer.
    """

    def __init__(self, folder: RunFolder, name: str, memory: OutOfMemory) -> None:
        self._memory = memory
        self.path: Path = folder.logs / f"{name}.err"
        self._alive = folder.alive
        self._name = name
        # The file has the output of earlier starts, whose errors are not those of this one.
        self._output_bytes = self.path.stat().st_size if self.path.exists() else 0

    def exit(self, pid: int, exit_code: int, error: str = "") -> Exit:
        """Returns the end of that process with its cause.

        Args:
            pid: the process.
            exit_code: below 0 the signal that ended it.
            error: the cause if known; else it is read from exit code, heartbeat and output.
        """
        details = self._details()
        beat = read_beat(self._alive, self._name)
        beat = beat if beat is not None and beat.pid == pid else None
        if exit_code == 0 and (beat is None or beat.state != State.done):
            # Such as by os._exit(0) in code of an author: the run still needs the component.
            exit_code, error = 1, "ended with exit code 0 before its work was done"
        return Exit(self._name, exit_code, error or self._why(exit_code, details, beat), details)

    def _details(self) -> str:
        try:
            with open_file(self.path) as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._output_bytes, end - _DETAILS_BYTES))
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _why(self, exit_code: int, details: str, beat: Beat | None) -> str:
        # Only the kernel knows why: the process itself could write nothing.
        if exit_code == -signal.SIGKILL and self._memory.took_one():
            return f"{exit_error(exit_code)}: out of memory, ended by the kernel"
        if exit_code < 0:
            words = _last_words(details) if -exit_code in _CRASHES else ""
            return f"{exit_error(exit_code)}: {words}" if words else exit_error(exit_code)
        if exit_code == START_AGAIN:
            return exit_error(exit_code)
        # The heartbeat has the error in one line; the last line of a traceback is often less clear.
        if beat is not None and beat.state == State.failed and beat.doing:
            return beat.doing
        return details.splitlines()[-1] if details else exit_error(exit_code)


def _last_words(details: str) -> str:
    """Returns the last line that a library wrote before a crash; empty if there is none."""
    lines = details.partition(_STACKS)[0].strip().splitlines()
    return lines[-1].strip()[:_WORDS_LIMIT] if lines else ""
