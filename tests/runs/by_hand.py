"""A run without a launcher: every process started by the line that ``plan`` prints for it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from session.folder import RunFolder
from tests.polling import DEADLINE_SECONDS, until
from tests.runs.command import CARTPOLE, COMMAND, Process, read_lines, still

T = TypeVar("T")


class ByHand:
    """The processes of one run, each as somebody would start it in a terminal.

    Args:
        path: run folder, which ``plan`` writes.
        words: the experiment's settings.
        experiment: its file.
    """

    def __init__(self, path: Path, *words: str, experiment: str = CARTPOLE) -> None:
        self.folder = RunFolder(path)
        argv = [*COMMAND, "plan", experiment, *words]
        argv += ["--format", "shell", "--folder", str(path)]
        # The lines hold paths relative to the folder where plan runs; the processes start there.
        said = subprocess.run(
            argv,
            cwd=path.parent,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert said.returncode == 0, said.stderr
        lines = [line for line in said.stdout.splitlines() if not line.startswith("#")]
        self.lines = {_name(line): line for line in lines}
        self.processes: dict[str, Process] = {}
        self._stack = ExitStack()

    def addresses(self) -> dict[str, str]:
        """Endpoint -> where its clients connect."""
        book = json.loads(self.folder.addresses.read_text())
        return {endpoint: entry["connect"] for endpoint, entry in book.items()}

    def redirect(self, endpoint: str, address: str) -> None:
        """Makes the clients of an endpoint connect elsewhere."""
        book = json.loads(self.folder.addresses.read_text())
        book[endpoint]["connect"] = address
        self.folder.addresses.write_text(json.dumps(book))

    def start(self, *names: str) -> None:
        """Starts these components, or all."""
        for name in names or self.lines:
            said = self.folder.path.parent / f"{name}-{len(self.processes)}.txt"
            process = Process(shlex.split(self.lines[name]), said)
            self.processes[name] = self._stack.enter_context(process)

    def until(self, look: Callable[[], T | None], *, seconds: float = DEADLINE_SECONDS) -> T:
        """Polls until ``look`` gives something that is true."""
        return until(look, seconds=seconds, what=self._why)

    def steps(self, number: int) -> None:
        """Waits until the run has taken so many environment steps."""
        self.until(lambda: self.line.get("env_steps", 0) >= number)

    def quiet(self) -> None:
        """Waits until two lines of progress tell of no further step."""
        self.until(lambda: still(read_lines(self.folder.progress)))

    def wait(self, seconds: float = 120.0) -> dict[str, int]:
        """The exit codes of all, once everybody has ended by himself."""
        until(
            lambda: not any(process.running for process in self.processes.values()),
            seconds=seconds,
            what=self._why,
        )
        return {name: process.wait() for name, process in self.processes.items()}

    def _why(self) -> str:
        running = [name for name, process in self.processes.items() if process.running]
        words = "\n".join(process.words for process in self.processes.values())
        return f"still running: {running}\n{self.line}\n{words}"

    @property
    def line(self) -> dict[str, Any]:
        """The newest line of ``progress.jsonl``."""
        return (read_lines(self.folder.progress) or [{}])[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of ``events.jsonl``."""
        return read_lines(self.folder.events)

    @property
    def result(self) -> Mapping[str, Any]:
        """The content of ``result.json``."""
        return self.folder.read_result() or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._stack.close()
        if kind is not None:
            # Whoever was killed here could not clear up.
            shutil.rmtree(self.folder.sockets, ignore_errors=True)


def _name(line: str) -> str:
    words = shlex.split(line)
    return words[words.index("--name") + 1]
