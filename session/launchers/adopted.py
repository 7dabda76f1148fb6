"""A run that another process supervises, commanded from here."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

from session.config import Config
from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.heartbeat import read_beats
from session.launchers.launcher import SUPERVISOR_CONTROL, ComponentStatus, Outcome, last_lines
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.sockets import poll

_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class AdoptedRun:
    """The same commands that the launcher of a run has, from any shell of its machine.

    Args:
        folder: the run folder.

    Raises:
        UsageError: no run was ever started there.
    """

    def __init__(self, folder: RunFolder) -> None:
        if not folder.addresses.is_file():
            raise UsageError(f"{folder} holds no run: it has no addresses.json")
        self._folder = folder
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def status(self) -> list[ComponentStatus]:
        """The table of components: as the supervisor sees it, or what the files say of the end."""
        if not self._folder.in_use:
            return self._last_status()
        rows: list[dict[str, Any]] = self._ask("status", {}).fields["components"]
        return [ComponentStatus(**row) for row in rows]

    def _last_status(self) -> list[ComponentStatus]:
        result = self._folder.read_result() or {}
        ends: dict[str, Any] = result.get("components", {})
        beats = read_beats(self._folder.alive)
        return [
            ComponentStatus(
                name=name,
                state="gone",
                pid=0,
                age_seconds=beats[name].age_seconds if name in beats else None,
                restarts=ends.get(name, {}).get("restarts", 0),
                exit_code=ends.get(name, {}).get("exit_code"),
                doing=beats[name].doing if name in beats else "",
            )
            for name in dict.fromkeys([*ends, *beats])
        ]

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """The last lines of a component's log and of its standard error.

        Raises:
            UsageError: it has left neither.
        """
        return last_lines(self._folder, name, lines)

    def scale(self, kind: str, num: int) -> None:
        """Makes it so many agents or evaluators (``agent``, ``eval``).

        Raises:
            RefusedError: there is nothing of that kind to scale, or the run is ending.
        """
        self._ask("scale", {"kind": kind, "num": num})

    def restart(self, name: str) -> None:
        """Ends one component and starts it again.

        Raises:
            RefusedError: there is no such component, or the run is ending.
        """
        self._ask("restart", {"name": name})

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns."""
        self._ask("stop", {"interrupted": interrupted, "reason": reason})

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Waits until nobody supervises the run any more.

        Raises:
            DeadlineError: that took longer than ``timeout_seconds``.
        """
        start = time.monotonic()
        while self._folder.in_use:
            if timeout_seconds is not None and time.monotonic() - start > timeout_seconds:
                raise DeadlineError(f"run {self._folder} goes on after {timeout_seconds:g} s")
            poll([], _LOOK_SECONDS)
        result = self._folder.read_result() or {}
        return Outcome(str(result.get("status", "failed")), str(result.get("reason", "")))

    def _ask(self, kind: str, fields: dict[str, Any]) -> Message:
        if not self._folder.in_use:
            raise UsageError(f"run {self._folder} is not running: nobody supervises it")
        addresses = AddressBook.load(self._folder.addresses)
        address = addresses.get(SUPERVISOR_CONTROL)
        if address is None or address.connect.startswith("inproc://"):
            raise UsageError(f"run {self._folder} runs in one thread: it takes no commands")
        wire = Wire(self._context, addresses, self._identity())
        try:
            dealer = wire.dealer(SUPERVISOR_CONTROL)
            return dealer.request(kind, fields, timeout_seconds=_ANSWER_SECONDS)
        finally:
            wire.close(0.0)

    def _identity(self) -> Identity:
        config = Config.load_file(self._folder.config)
        return Identity(
            "command", time.time_ns() // 1_000_000, bytes.fromhex(config.fingerprint()[:16])
        )

    def close(self) -> None:
        """Gives back what it holds; the run goes on."""
        self._context.destroy(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def adopt(folder: str | Path | RunFolder) -> AdoptedRun:
    """The run in a folder, for commands from any shell; use it in a ``with`` statement.

    Raises:
        UsageError: no run was ever started there.
    """
    return AdoptedRun(folder if isinstance(folder, RunFolder) else RunFolder(folder))
