"""What every launcher can do, and what all of them write into the run folder."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from session.component import Topology
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder, write_atomically
from session.heartbeat import read_beats
from session.launchers.instruction import Failure
from session.launchers.status import ComponentStatus as ComponentStatus
from session.wire import AddressBook
from session.wire.endpoint import LOOPBACK
from session.wire.security import write_keys

SUPERVISOR_CONTROL = "supervisor.control"
_INTERRUPTED = "interrupted before the learner could end the run"
_LOG_SUFFIXES = (".log", ".err")
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
    """Turns a topology into something that runs as long as this process polls it."""

    def launch(self) -> None:
        """Starts all components and returns."""
        ...


class RunControl(Control, Protocol):
    """A run that goes on without this process, commanded from here; use it in a ``with``."""

    @property
    def folder(self) -> RunFolder:
        """The run folder on this machine: at least ``config.yaml`` lies there."""
        ...

    @property
    def running(self) -> bool:
        """True while anything of the run lives."""
        ...

    def progress(self) -> Mapping[str, Any]:
        """The newest line of ``progress.jsonl``, empty while there is none."""
        ...

    def log_lines(self, name: str = "", *, follow: bool = False) -> Iterator[str]:
        """All that a component has logged, line by line; without a name everybody, by time.

        Args:
            name: of the component.
            follow: go on with what is being logged, until the run is over.

        Raises:
            UsageError: it has logged nothing, or there is no such component.
        """
        ...

    def close(self) -> None:
        """Gives back what it holds; the run goes on."""
        ...

    def __enter__(self) -> Self:
        """Gives itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; the run goes on."""
        ...


class Cluster(RunControl, Protocol):
    """Turns a topology into something that runs by itself, detached from this process.

    Made from the resolved config, the topology and the run folder, which exists and is empty, or
    holds the run that is resumed.
    """

    def launch(self) -> None:
        """Writes ``config.yaml``, starts everything, and returns once the run answers.

        Raises:
            UsageError: what it needs is missing (a program, a free name), or the folder is in use.
            RunError: it was started and died at once; says why.
        """
        ...

    def dry_run(self) -> str:
        """What :meth:`launch` would start, as text to paste; starts and writes nothing."""
        ...


def make_addresses(topology: Topology, config: Config, folder: RunFolder) -> AddressBook:
    """Where each endpoint of a run is, its supervisor's included.

    Args:
        topology: whose endpoints they are; what lies outside stays as the folder's book says.
        config: the resolved experiment; ``session_config.launcher`` says how they are reached.
        folder: the run folder; it names the folder of ipc sockets.

    Raises:
        UsageError: there is no such transport, or this machine does not have the host's address.
    """
    transport: str = config.session_config.launcher.transport
    host: str | None = config.session_config.launcher.host
    if transport not in ("ipc", "tcp"):
        raise UsageError(f"session_config.launcher.transport is '{transport}', expected ipc or tcp")
    outside = AddressBook.load(folder.addresses) if topology.outside else {}
    addresses = {endpoint: outside[endpoint] for endpoint in topology.outside}
    if host is not None:
        address = resolve_host(host)
        addresses |= AddressBook.tcp(free_ports(topology.endpoints, address), address)
        # Commands come from this machine: whoever joins gives none.
        addresses |= AddressBook.ipc([SUPERVISOR_CONTROL], folder.sockets)
        return AddressBook(addresses)
    endpoints = (*topology.endpoints, SUPERVISOR_CONTROL)
    if transport == "ipc":
        return AddressBook(addresses | {**AddressBook.ipc(endpoints, folder.sockets)})
    return AddressBook(addresses | {**AddressBook.tcp(free_ports(endpoints))})


def resolve_host(host: str) -> str:
    """The IPv4 address of a host where others are to connect.

    Raises:
        UsageError: there is no such host, or it stands for all addresses at once.
    """
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise UsageError(f"no host '{host}': {error.strerror}; give an IPv4 address") from None
    if ip_address(address).is_unspecified:
        raise UsageError(
            f"'{host}' stands for all addresses at once: give the one where others can reach this "
            "machine (ip addr shows them)"
        )
    return address


def protect(folder: RunFolder, config: Config) -> None:
    """Writes the keys of a run that other machines can reach, unless it is to be insecure.

    Raises:
        UsageError: they cannot be written.
    """
    session = config.session_config
    if session.launcher.host is not None and not session.security.insecure:
        write_keys(folder.keys)


def free_ports(names: Iterable[str], host: str = LOOPBACK) -> dict[str, int]:
    """Name -> a port of an address of this machine that nobody uses now.

    Raises:
        UsageError: this machine does not have that address.
    """
    with ExitStack() as stack:
        try:
            # All are held until the last is found, or one could be given twice.
            held = {n: stack.enter_context(socket.create_server((host, 0))) for n in names}
        except OSError as error:
            raise UsageError(
                f"cannot bind to {host}: {os.strerror(error.errno or 0)}; give --host one of this "
                "machine's own addresses (ip addr shows them)"
            ) from None
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
    real_seconds: float | None = None,
) -> Outcome:
    """Completes ``result.json`` and returns what it says of the end.

    The learner's own result is kept; where it could write none, the launcher says how it ended.

    Args:
        folder: the run folder.
        config: the resolved experiment.
        components: name -> restarts, exit_code, alive_seconds.
        failure: why the run failed, if it did.
        interrupted: it was ended by hand.
        real_seconds: what the run took, where all other seconds are counted.
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
    if real_seconds is not None:
        result["real_seconds"] = round(real_seconds, 3)
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
    paths = [folder.logs / f"{name}{suffix}" for suffix in _LOG_SUFFIXES]
    there = [path for path in paths if path.is_file()]
    if not there:
        raise UsageError(f"no log of '{name}' in {folder}; there are {log_names(folder)}")
    return [line for path in there for line in _tail(path, lines)]


def log_names(folder: RunFolder) -> str:
    """The components that have left a log or words on their standard error, for a message."""
    paths = [path for path in folder.logs.glob("*.*") if path.suffix in _LOG_SUFFIXES]
    return ", ".join(sorted({path.stem for path in paths} - {"all"})) or "none yet"


def _tail(path: Path, lines: int) -> list[str]:
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
