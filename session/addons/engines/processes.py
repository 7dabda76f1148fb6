"""Machines that are processes here: the simplest engine, for tests and for a large workstation."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from session.addons.engines.machine_restarts import RestartedMachines, Work
from session.launchers.instruction import exit_error
from session.process.component import LIFELINE, TOKEN

_SHOWN_BYTES = 2000


class Child(Work):
    """A command as a child of this process, which ends with it; its output goes into a file.

    Args:
        command: words of the command; the last one is the folder of the machine.
        token: token of the run.
    """

    def __init__(self, command: Sequence[str], token: str) -> None:
        folder = Path(command[-1])
        self._output = folder.with_name(f"{folder.name}.txt")
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Its other end is closed when this process dies, however that happens.
        reader, writer = os.pipe()
        self._lifeline = os.fdopen(writer, "wb")
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, TOKEN: token, LIFELINE: str(reader)},
                pass_fds=[reader],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(reader)

    @property
    def begun(self) -> bool:
        return True

    def poll(self) -> str | None:
        return None if self._process.poll() is None else self.wait()

    def wait(self) -> str:
        """Waits for its end; returns the cause as :meth:`poll`."""
        code = self._process.wait()
        self._lifeline.close()
        return f"{exit_error(code)}: {self._last_line()}" if code else ""

    def _last_line(self) -> str:
        with suppress(OSError):
            text = self._output.read_bytes()[-_SHOWN_BYTES:]
            return text.decode(errors="replace").strip().rpartition("\n")[2]
        return ""

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()


class ProcessMachines(RestartedMachines):
    """Runs each machine as a child of this process, which ends with it.

    Args:
        spec: command and resources of each machine.
    """

    name = "processes"

    def _begin(self, name: str) -> Work:
        return Child(self._spec.words(name), self._spec.token)
