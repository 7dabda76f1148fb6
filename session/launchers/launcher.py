"""Interfaces of launchers, the files that all of them write, and the steps of detached launches."""

from __future__ import annotations

import json
import os
import shlex
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from session.atomic_file import write_atomically
from session.config import Config
from session.config.session_defaults import BUDGETS
from session.errors import NOTICE, ConfigError, RunError, UsageError, WireError
from session.folder import RunFolder
from session.json_file import open_file, read_file
from session.launchers.control_client import ask
from session.launchers.instruction import Failure
from session.process.clock import Moment
from session.process.component import Topology
from session.process.heartbeat import read_beats
from session.process.periodic import wait_until
from session.wire import AddressBook
from session.wire.endpoint import LOOPBACK
from session.wire.security import write_keys
from session.wire.socket_state import poll

SUPERVISOR_MODULE = "main.supervisor"
_START_SECONDS = 60.0
_ANSWER_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_LAST_WORD_SECONDS = 0.5

SUPERVISOR_CONTROL = "supervisor.control"
_INTERRUPTED = "interrupted before the learner could end the run"
_LOG_SUFFIXES = (".log", ".err")
_LEFT = "its components have left a run of another machine"
_NO_RESULT = "the run ended without a result of the learner"


def end_advice(config: Config, components: Iterable[str] = ()) -> list[str]:
    """Returns a note on a run that never ends by itself, for an engine that keeps nodes for it.

    Args:
        config: config of the run.
        components: names of the components; any.
    """
    stop = config.session_config.stop
    ends = ("eval_return", "above", *BUDGETS)
    if stop.eval_returns or any(stop[key] is not None for key in ends):
        return []
    return [
        "the run has neither a goal nor a budget: it keeps its nodes until surreal-like stop; set "
        "one, for example session_config.stop.seconds=3600"
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a run.

    Args:
        status: ``stopped``, ``failed`` or ``interrupted``.
        reason: the stop condition or the error, in one line.
        details: output of the failed component, with its traceback.
    """

    status: str
    reason: str
    details: str = ""


def make_addresses(topology: Topology, config: Config, folder: RunFolder) -> AddressBook:
    """Assigns an address to each endpoint of a run, including its supervisor's.

    Args:
        topology: endpoints get addresses; those outside keep that of ``addresses.json``.
        config: the resolved experiment; ``session_config.launcher`` sets transport and host.
        folder: the run folder; it gives the folder of ipc sockets.

    Raises:
        UsageError: this machine does not have the host's address.
    """
    transport: str = config.session_config.launcher.transport
    host: str | None = config.session_config.launcher.host
    outside = AddressBook.load(folder.addresses) if topology.outside else {}
    addresses = {endpoint: outside[endpoint] for endpoint in topology.outside}
    if host is not None:
        address = resolve_host(host)
        known = known_ports(folder, address)
        addresses |= AddressBook.tcp(free_ports(topology.endpoints, address, known), address)
        # Commands come from this machine only: machines that join send none.
        addresses |= AddressBook.ipc([SUPERVISOR_CONTROL], folder.sockets)
        return AddressBook(addresses)
    endpoints = (*topology.endpoints, SUPERVISOR_CONTROL)
    if transport == "ipc":
        return AddressBook(addresses | {**AddressBook.ipc(endpoints, folder.sockets)})
    return AddressBook(addresses | {**AddressBook.tcp(free_ports(endpoints))})


def resolve_host(host: str) -> str:
    """Returns the IPv4 address of a host to which other machines connect.

    Raises:
        UsageError: there is no such host, or it means all addresses at once.
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
    """Writes the keys of a run that other machines can reach, unless it is configured insecure.

    Raises:
        UsageError: they cannot be written.
    """
    session = config.session_config
    if session.launcher.host is not None and not session.security.insecure:
        write_keys(folder.keys)


def earlier_addresses(folder: RunFolder) -> AddressBook:
    """Returns the addresses of an earlier part of the run; empty without one."""
    try:
        return AddressBook.load(folder.addresses)
    except ConfigError:
        # It is written anew.
        return AddressBook({})


def known_ports(folder: RunFolder, address: str) -> dict[str, int]:
    """Returns endpoint -> port before the run was resumed, where machines that joined look."""
    before = {name: each.connect for name, each in earlier_addresses(folder).items()}
    own = f"tcp://{address}:"
    ports = {name: each.removeprefix(own) for name, each in before.items() if each.startswith(own)}
    return {name: int(port) for name, port in ports.items() if port.isdecimal()}


def free_ports(
    names: Iterable[str], host: str = LOOPBACK, wanted: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Returns name -> a free port of an address of this machine.

    Args:
        names: the names.
        host: the address.
        wanted: name -> port that it gets if it is free.

    Raises:
        UsageError: this machine does not have that address.
    """
    wanted = wanted or {}
    # None takes a port that another one wants.
    order = sorted(names, key=lambda name: name not in wanted)
    with ExitStack() as stack:
        try:
            # All stay bound until the last is found; otherwise one could be returned twice.
            held = {n: stack.enter_context(_bind(host, wanted.get(n, 0))) for n in order}
        except OSError as error:
            raise UsageError(
                f"cannot bind to {host}: {os.strerror(error.errno or 0)}; give --host one of this "
                "machine's own addresses (ip addr shows them)"
            ) from None
        return {name: int(server.getsockname()[1]) for name, server in held.items()}


def _bind(host: str, port: int) -> socket.socket:
    """Binds a port; another one if it is taken."""
    with suppress(OSError):
        return socket.create_server((host, port))
    return socket.create_server((host, 0))


def write_run_files(folder: RunFolder, topology: Topology, addresses: AddressBook) -> None:
    """Writes ``topology.json`` and ``addresses.json``."""
    write_topology(folder, topology)
    write_atomically(folder.addresses, addresses.dump())


def write_topology(folder: RunFolder, topology: Topology) -> None:
    """Writes ``topology.json``, with the command line of each component."""
    data = topology.to_dict()
    for entry, component in zip(data["components"], topology, strict=True):
        entry["command"] = shlex.join(component.command(str(folder)))
    write_atomically(folder.topology, json.dumps(data, indent=2) + "\n")


def forget_beats(folder: RunFolder) -> None:
    """Removes the heartbeat files of an earlier part of the run."""
    for name in read_beats(folder.alive):
        (folder.alive / name).unlink(missing_ok=True)


def finish_result(
    folder: RunFolder,
    config: Config,
    components: Mapping[str, Mapping[str, Any]],
    *,
    failure: Failure | None = None,
    interrupted: bool = False,
    reason: str = "",
    real_seconds: float | None = None,
) -> Outcome:
    """Completes ``result.json`` and returns its status and reason.

    The learner's own result is kept; without one the launcher writes status and reason.

    Args:
        folder: the run folder.
        config: the resolved experiment.
        components: name -> restarts, exit_code, alive_seconds.
        failure: cause of a failed run.
        interrupted: True if a user ended it.
        reason: reason of that command. A notice stays one: machines that have joined wait for the
            run, and its job begins again.
        real_seconds: duration on the wall clock, for a run whose clock counts rounds.
    """
    result = dict(folder.read_result() or {})
    result.setdefault("algorithm", config.algorithm)
    result.setdefault("env_name", config.env_config.env_name)
    result.setdefault("seed", config.session_config.seed)
    result.setdefault("goal_met", None)
    if failure is not None:
        result["status"] = "failed"
        result["reason"] = f"{failure.component}: {failure.error}"
    elif components and "learner" not in components:
        result["status"], result["reason"] = "stopped", _LEFT
    elif result.get("status", "running") == "running":
        result["status"] = "interrupted" if interrupted else "failed"
        text = NOTICE if reason == NOTICE else _INTERRUPTED
        result["reason"] = text if interrupted else _NO_RESULT
    result["components"] = dict(components)
    if real_seconds is not None:
        result["real_seconds"] = round(real_seconds, 3)
    # On a full disk the old file stays; the returned outcome is still correct.
    with suppress(OSError):
        write_atomically(folder.result, json.dumps(result, indent=2) + "\n")
    details = failure.details if failure is not None else ""
    return Outcome(result["status"], str(result.get("reason", "")), details)


def last_lines(folder: RunFolder, name: str, lines: int) -> list[str]:
    """Returns the last lines of a component's log, then of its standard error.

    Raises:
        UsageError: it has neither.
    """
    paths = [folder.logs / f"{name}{suffix}" for suffix in _LOG_SUFFIXES]
    there = [path for path in paths if path.is_file()]
    if not there:
        raise UsageError(f"no log of '{name}' in {folder}; there are {log_names(folder)}")
    return [line for path in there for line in _tail(path, lines)]


def log_names(folder: RunFolder) -> str:
    """Returns the components that have a log or standard error file, for a message."""
    paths = [path for path in folder.logs.glob("*.*") if path.suffix in _LOG_SUFFIXES]
    return ", ".join(sorted({path.stem for path in paths} - {"all"})) or "none yet"


def _tail(path: Path, lines: int) -> list[str]:
    with open_file(path) as file:
        return [line.decode(errors="replace").rstrip("\n") for line in deque(file, maxlen=lines)]


def write_launch(
    folder: RunFolder, config: Config, topology: Topology, launcher: str, **facts: object
) -> None:
    """Writes the files that the supervisor reads: ``config.yaml`` and ``topology.json``.

    The config gets a note of the launcher and of how to find the run.

    Args:
        folder: the run folder.
        config: the resolved experiment; the note is also added to it.
        topology: components of the run and their wiring.
        launcher: ``local`` or ``tmux``.
        facts: further entries of the note.
    """
    now = Moment.at(time.time())
    begun = {**now._asdict(), "first_started": now.started, "seconds_before": 0.0}
    run = {**begun, **(config.get("run") or {})}
    config["run"] = {**run, "launcher": launcher, **facts}
    config.dump_file(folder.config)
    write_topology(folder, topology)


def await_supervisor(folder: RunFolder, died: Callable[[], bool]) -> None:
    """Waits until the supervisor of a run replies.

    Args:
        folder: the run folder, as an absolute path.
        died: function that returns True once the supervisor's process has ended.

    Raises:
        UsageError, RunError: it ended at once; with its own message.
    """
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(folder):
        if died() and not folder.over:
            raise RunError(f"the supervisor of run {folder} died at once: {_last_word(folder)}")
        if folder.over and not folder.in_use:
            # The run was so short that it is over before the first request.
            return
        if time.monotonic() > deadline:
            raise RunError(
                f"the supervisor of run {folder} does not answer; see: {_error_file(folder)}"
            )
        poll([], _LOOK_SECONDS)


def refuse_running(folder: RunFolder) -> None:
    """Refuses a folder in which a run goes on.

    Raises:
        UsageError: a supervisor holds it.
    """
    if folder.in_use:
        raise UsageError(
            f"run {folder} is in use by another launcher; stop it with: surreal-like stop {folder}"
        )


def _answers(folder: RunFolder) -> bool:
    if not folder.in_use or not folder.addresses.is_file():
        return False
    try:
        ask(folder, SUPERVISOR_CONTROL, "status", timeout_seconds=_ANSWER_SECONDS)
    except (WireError, UsageError):
        return False
    return True


def _error_file(folder: RunFolder) -> str:
    return str(folder.logs / "supervisor.err")


def _last_word(folder: RunFolder) -> str:
    """Returns the last line of the supervisor's log; waits for it, as another process writes it."""
    read = partial(_read, folder.logs / "supervisor.err")
    if not wait_until(read, _LAST_WORD_SECONDS, look_seconds=_LOOK_SECONDS):
        return f"it left no word in {folder.logs}"
    return read().splitlines()[-1].removeprefix("supervisor: ")


def _read(path: Path) -> str:
    try:
        return read_file(path).decode(errors="replace").strip()
    except OSError:
        return ""
