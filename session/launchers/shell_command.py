"""The line that starts a process in a window, complete enough for any other shell."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from session.component import Component
from session.launchers.zygote import ONE_THREAD
from session.loggerplex.terminal import TERMINAL


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """What starts one process, in a window or in any other shell.

    Args:
        command: its command line.
        preamble_cmd: shell command before it, such as one that activates an environment.
    """

    command: str
    preamble_cmd: str = ""

    @classmethod
    def of(cls, component: Component, folder: str, preamble_cmd: str = "") -> Self:
        """The line of a component in a run folder."""
        variables = [f"{name}={value}" for name, value in ONE_THREAD.items()]
        return cls(shlex.join(["env", *variables, *component.command(folder)]), preamble_cmd)

    @classmethod
    def of_supervisor(cls, module: str, folder: str, preamble_cmd: str = "") -> Self:
        """The line of a supervisor."""
        command = [sys.executable, "-P", "-m", module, "--folder", folder]
        return cls(shlex.join(command), preamble_cmd)

    def __str__(self) -> str:
        return f"{self._before}{self.command}"

    @property
    def _before(self) -> str:
        before = self.preamble_cmd.strip().rstrip(";")
        return f"{{ {before}; }} && " if before else ""

    def script(self, said: Path) -> str:
        """What bash runs in a window: shows the line, becomes its process, keeps what that says.

        Args:
            said: file to which standard output and standard error are appended, too.
        """
        steps = [
            f"printf '%s\\n' {shlex.quote(str(self))}",
            # Neither Ctrl-C, nor the hang-up when the process has ended, may keep tee from hearing
            # its last words.
            "trap '' INT HUP",
            f"exec > >(exec tee -a {shlex.quote(str(said))}) 2>&1",
            "trap - INT HUP",
            # Nor may what is only shown be kept with them.
            f"export {TERMINAL}=/dev/tty",
            f"{self._before}exec {self.command}",
        ]
        if self._before:
            # Here only if that failed: the window must show why before it closes.
            steps.append("code=$?; exec >&- 2>&-; wait $!; exit $code")
        return "\n".join(steps)
