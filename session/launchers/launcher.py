"""What every launcher can do, and what all of them write into the run folder."""

from __future__ import annotations

import json
import shlex
import socket
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from session.component import Topology
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder, write_atomically
from session.heartbeat import read_beats
from session.launchers.instruction import Failure
from session.wire import AddressBook

SUPERVISOR_CONTROL = "supervisor.control"
_INTERRUPTED = "interrupted before the learner could end the run"
_NO_RESULT = "the run ended without a result of the learner"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Args:
        status: ``stopped``, ``failed`` or ``interrupted``.
        reason: which stop condition, or which error, in one line.
        details: all that the failed component said, with its traceback.
    """

    status: str
    reason: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One row of the table of components.

    Args:
        name: component name.
        state: ``waiting``, ``starting``, ``running``, ``draining`` or ``gone``.
        pid: its process, 0 where there is none.
        age_seconds: since its last beat, None if it was never heard.
        restarts: how often it was started again.
        exit_code: of its last process, None while that lives.
        doing: what it said it is doing, or why it failed.
    """

    name: str
    state: str
    pid: int
    age_seconds: float | None
    restarts: int
    exit_code: int | None
    doing: str


class Control(Protocol):
    """What can be done with a run that goes on, wherever it was launched."""

    def status(self) -> list[ComponentStatus]:
        """The table of components."""
        ...

    def logs(self, name: str, lines: int = 50) -> list[str]:
        """The last lines that a component has logged."""
        ...

    def scale(self, kind: str, num: int) -> None:
        """Makes it so many of a kind, ``agent`` or ``eval``."""
        ...

    def restart(self, name: str) -> None:
        """Ends one component and starts it again."""
        ...

    def stop(self, *, interrupted: bool = False, reason: str = "stopped by command") -> None:
        """Begins the clean end of the run and returns."""
        ...

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        """Waits until the run is over."""
        ...


class Launcher(Control, Protocol):
    """Turns a topology into something that runs."""

    def launch(self) -> None:
        """Starts all components and returns."""
        ...


def make_addresses(topology: Topology, transport: str, folder: RunFolder) -> AddressBook:
    """Where each endpoint of a run on this machine is, its supervisor's included.

    Args:
        topology: whose endpoints they are.
        transport: ``ipc`` or ``tcp``.
        folder: the run folder; it names the folder of ipc sockets.

    Raises:
        UsageError: there is no such transport.
    """
    endpoints = (*topology.endpoints, SUPERVISOR_CONTROL)
    if transport == "ipc":
        return AddressBook.ipc(endpoints, folder.sockets)
    if transport == "tcp":
        return AddressBook.tcp(free_ports(endpoints))
    raise UsageError(f"session_config.launcher.transport is '{transport}', expected ipc or tcp")


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """Name -> a port of the loopback interface that nobody uses now."""
    with ExitStack() as stack:
        # All are held until the last is found, or one could be given twice.
        held = {n: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for n in names}
        return {name: int(server.getsockname()[1]) for name, server in held.items()}


def write_run_files(folder: RunFolder, topology: Topology, addresses: AddressBook) -> None:
    """Writes ``topology.json`` and ``addresses.json``."""
    data = topology.to_dict()
    for entry, component in zip(data["components"], topology, strict=True):
        entry["command"] = shlex.join(component.command(str(folder)))
    write_atomically(folder.topology, json.dumps(data, indent=2) + "\n")
    write_atomically(folder.addresses, addresses.dump())


def forget_beats(folder: RunFolder) -> None:
    """Removes the signs of life of an earlier part of the run."""
    for name in read_beats(folder.alive):
        (folder.alive / name).unlink(missing_ok=True)


def finish_result(
    folder: RunFolder,
    config: Config,
    components: Mapping[str, Mapping[str, Any]],
    *,
    failure: Failure | None = None,
    interrupted: bool = False,
) -> Outcome:
    """Completes ``result.json`` and returns what it says of the end.

    The learner's own result is kept; where it could write none, the launcher says how it ended.

    Args:
        folder: the run folder.
        config: the resolved experiment.
        components: name -> restarts, exit_code, alive_seconds.
        failure: why the run failed, if it did.
        interrupted: it was ended by hand.
    """
    result = dict(folder.read_result() or {})
    result.setdefault("algorithm", config.algorithm)
    result.setdefault("env_name", config.env_config.env_name)
    result.setdefault("seed", config.session_config.seed)
    result.setdefault("goal_met", None)
    if failure is not None:
        result["status"] = "failed"
        result["reason"] = f"{failure.component}: {failure.error}"
    elif result.get("status", "running") == "running":
        result["status"] = "interrupted" if interrupted else "failed"
        result["reason"] = _INTERRUPTED if interrupted else _NO_RESULT
    result["components"] = dict(components)
    # On a full disk the old result stays, and what is returned still tells the end.
    with suppress(OSError):
        write_atomically(folder.result, json.dumps(result, indent=2) + "\n")
    details = failure.details if failure is not None else ""
    return Outcome(result["status"], str(result.get("reason", "")), details)


def last_lines(folder: RunFolder, name: str, lines: int) -> list[str]:
    """The last lines of a component's log, then of its standard error.

    Raises:
        UsageError: it has left neither.
    """
    paths = [path for path in sorted(folder.logs.glob("*.*")) if path.suffix in (".log", ".err")]
    known = sorted({path.stem for path in paths})
    if name not in known:
        there = ", ".join(known) or "none yet"
        raise UsageError(f"no log of '{name}' in {folder}; there are {there}")
    found: list[str] = []
    for path in (
        path
        for suffix in (".log", ".err")
        for path in paths
        if path.stem == name and path.suffix == suffix
    ):
        found += _tail(path, lines)
    return found


def _tail(path: Path, lines: int) -> list[str]:
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
