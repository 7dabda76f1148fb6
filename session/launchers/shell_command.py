"""Command line of a process in a window, which also works in any other shell."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from session.launchers.fork_client import ONE_THREAD
from session.loggerplex.terminal import TERMINAL
from session.process.component import Component


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """Command line that starts one process, in a window or in any other shell.

    Args:
        command: its command line.
        preamble_cmd: shell command to run first, for example to activate an environment.
    """

    command: str
    preamble_cmd: str = ""

    @classmethod
    def of(cls, component: Component, folder: str, preamble_cmd: str = "") -> Self:
        """Returns the command of a component in a run folder."""
        variables = [f"{name}={value}" for name, value in ONE_THREAD.items()]
        return cls(shlex.join(["env", *variables, *component.command(folder)]), preamble_cmd)

    @classmethod
    def of_supervisor(cls, module: str, folder: str, preamble_cmd: str = "") -> Self:
        """Returns the command of a supervisor."""
        command = [sys.executable, "-P", "-m", module, "--folder", folder]
        return cls(shlex.join(command), preamble_cmd)

    def __str__(self) -> str:
        return f"{self._before}{self.command}"

    @property
    def _before(self) -> str:
        before = self.preamble_cmd.strip().rstrip(";")
        return f"{{ {before}; }} && " if before else ""

    def script(self, output: Path) -> str:
        """Bash script for a window: prints the command, executes it and records its output.

        Args:
            output: file to which standard output and standard error are also appended.
        """
        steps = [
            f"printf '%s\\n' {shlex.quote(str(self))}",
            # tee must survive Ctrl-C and the hang-up at the end of the process: it still reads the
            # last output.
            "trap '' INT HUP",
            f"exec > >(exec tee -a {shlex.quote(str(output))}) 2>&1",
            "trap - INT HUP",
            # Output for display only goes to the terminal and not through tee into the file.
            f"export {TERMINAL}=/dev/tty",
            f"{self._before}exec {self.command}",
        ]
        if self._before:
            # Reached only if the preamble fails: the window must show the error before it closes.
            steps.append("code=$?; exec >&- 2>&-; wait $!; exit $code")
        return "\n".join(steps)
