"""Last words of a worker of pytest-xdist that has vanished, such as an assertion of libzmq.

Each worker writes its standard error to a file of its own, which the main process shows if the
worker ends before its tests do. pytest's own capture of file descriptors would lose it: that is
given to a process by ``--capture=sys``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = "SURREAL_LIKE_TEST_WORDS"  # set by conftest in the main process; workers inherit it
SHOWN_LINES = 60


def file_of(worker: str) -> Path:
    return Path(os.environ[FOLDER]) / f"{worker}.err"


class LastWords:
    """Keeps the standard error of each worker, and shows that of those that have vanished."""

    def __init__(self) -> None:
        self.vanished: dict[str, list[str]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        if worker is None or config.getoption("capture") == "fd":
            return
        number = os.open(file_of(worker), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for output in (1, 2):  # pytest-xdist speaks by copies of both
            os.dup2(number, output)
        os.close(number)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        path = file_of(node.gateway.id)
        if error and path.exists():
            self.vanished[node.gateway.id] = path.read_text(errors="replace").splitlines()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for worker, lines in self.vanished.items():
            terminalreporter.section(f"last words of worker {worker}")
            for line in lines[-SHOWN_LINES:]:
                terminalreporter.write_line(line)
