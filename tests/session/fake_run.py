"""A stand-in for a run that goes on: it records its commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.launchers.handle import RunHandle
from session.launchers.launcher import Outcome
from session.launchers.status import ComponentStatus
from session.process.heartbeat import State


class FakeRun(RunHandle):
    """Records its commands."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self._running = True
        self.commands: list[Any] = []
        self.rows = {name: status(name) for name in ("learner", "agent-0", "agent-1")}
        self.line: Mapping[str, Any] = {}

    @property
    def running(self) -> bool:
        return self._running

    def status(self) -> list[ComponentStatus]:
        return list(self.rows.values())

    def progress(self) -> Mapping[str, Any]:
        return self.line

    def logs(self, name: str, lines: int = 50) -> list[str]:
        path = self.folder.logs / f"{name}.log"
        if not path.is_file():
            raise UsageError(f"no log of '{name}'")
        return path.read_text().splitlines()[-lines:]

    def scale(self, kind: str, num: int) -> None:
        self.commands.append((kind, num))
        for index in range(num):
            self.rows.setdefault(f"{kind}-{index}", status(f"{kind}-{index}"))

    def restart(self, name: str) -> None:
        self.commands.append(("restart", name))

    def stop(self, *, interrupted: bool = False, reason: str = "") -> None:
        self.commands.append(("stop", interrupted, reason))
        self._running = False

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        if self.running:
            raise DeadlineError("it goes on")
        return Outcome("stopped", "")

    def close(self) -> None:
        self.commands.append("closed")


def status(name: str, state: str = "running", pid: int = 0) -> ComponentStatus:
    return ComponentStatus(name, State(state), pid, 0.5, 0, None, "")
