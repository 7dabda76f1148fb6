"""Requests admission to a run of another machine: sends a token, receives config and addresses."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from session.atomic_file import write_atomically
from session.config import Config
from session.config.named_code import split_place
from session.errors import AdmissionError, DeadlineError, RefusedError, RunError, UsageError
from session.folder import RunFolder
from session.run_connection import Client
from session.tensorplex.groups import name_of, own_client_id
from session.wire import Address, AddressBook, Message
from session.wire.security import Security
from surreal_like.addons.join.admission_server import ANSWERS, ENDPOINT, TUNE_ENDPOINT
from surreal_like.addons.join.tokens import Token
from surreal_like.coordinator.stop_rule import Verdict
from surreal_like.experiment.user_code import file_hash

_ANSWER_SECONDS = 4.5


@dataclass(frozen=True, slots=True)
class Invitation:
    """The user's settings to join a run.

    Args:
        address: ``host:port`` of the run's join server; or the run's folder, where machines share
            it: its newest ``addresses.json`` has that address.
        token: printed by ``launch``.
        agents: number of agents to run here; 0 only looks whether the run goes on.
        algorithm: the run's own algorithm file, on this machine.
        clients: names for the metrics and logs of scripts, such as ``simulator/0``.
        folder: place for the files of this machine; None: below that of temporary files, the
            same for the same token, so that a machine that joins again has the same key.
    """

    address: str
    token: str
    agents: int = 1
    algorithm: Path | None = None
    folder: Path | None = None
    clients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of a run, and the folder that it was written to.

    Args:
        config: config of the run, adapted to this machine; or the tune file of a tuning.
        names: names of the agents, or of the worker.
        addresses: endpoints of the run or tuning.
        folder: folder of this machine.
        wants: ``agents`` or ``slots``.
    """

    config: Config
    names: tuple[str, ...]
    addresses: AddressBook
    folder: RunFolder
    wants: str = "agents"


class NotNowError(UsageError):
    """The run does not answer, or has no place for this machine now: it may have one later."""


def request_admission(invitation: Invitation) -> Admission:
    """Exchanges the token, and writes the files that the agents here need.

    Raises:
        UsageError: the invitation is wrong.
        NotNowError: the address does not answer, or the run has no place now.
        AdmissionError: the run rejects this machine; the message gives the reason.
    """
    token = Token.decode(invitation.token)
    address = _find_address(invitation.address)
    if invitation.algorithm is not None and not os.path.isfile(invitation.algorithm):
        raise UsageError(f"--algorithm {invitation.algorithm}: there is no such file")
    folder = _make_folder(invitation, token)
    with suppress(FileNotFoundError):
        # Left by an earlier time in this folder.
        folder.result.unlink()
    try:
        answer = _exchange(invitation, token, address, folder)
    except BaseException:
        if invitation.folder is None and not folder.addresses.exists():
            # Never admitted: the key of this folder is useless.
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    try:
        return _write(answer.fields, folder, invitation.algorithm)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"what {invitation.address} answered is no run: {error!r}") from None


def _find_address(given: str) -> str:
    """Returns the address of a join server, such as ``tcp://192.0.2.7:41391``.

    Raises:
        UsageError: the text is neither an address nor a path.
        NotNowError: the run in the folder was not started yet, or no machine can join it.
    """
    host, _, port = given.removeprefix("tcp://").rpartition(":")
    if host and "/" not in host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 1 << 16:
        return f"tcp://{host}:{port}"
    if not is_folder(given):
        raise UsageError(
            f"'{given}' is no address: write it as HOST:PORT, or give the folder of the run"
        )
    path = RunFolder(given).addresses
    if not path.is_file():
        raise NotNowError(
            f"{given} is not the folder of a run that was started: it has no {path.name}"
        )
    book = AddressBook.load(path)
    if (endpoint := join_endpoint(book)) is None:
        raise NotNowError(f"run {given} was launched without --host, so no machine can join it")
    return book[endpoint].connect


def _refuse_over(address: str) -> None:
    """Refuses to wait for a run that has ended for good, as its folder says.

    Raises:
        AdmissionError: it has.
    """
    if not is_folder(address):
        return
    folder = RunFolder(address)
    end = Verdict.of_result(folder.read_result())
    if not folder.over or end.resumable:
        return
    # The result may be that of an earlier part: one that begins writes its addresses first.
    if folder.result.stat().st_mtime >= folder.addresses.stat().st_mtime:
        raise AdmissionError(f"run {address} is over: {end.reason}")


def is_folder(address: str) -> bool:
    """Returns True if the address is the folder of a run, which may not be there yet."""
    return os.path.isdir(address) or "/" in address.removeprefix("tcp://")


def join_endpoint(book: AddressBook) -> str | None:
    """Returns the endpoint at which machines join a run or a tuning; None if none can."""
    return next((name for name in (ENDPOINT, TUNE_ENDPOINT) if name in book), None)


def default_folder(token: str) -> Path:
    """Returns the default folder of a machine that uses this token."""
    digest = hashlib.sha256(token.encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"surreal-like-join-{digest}"


def in_use_text(folder: RunFolder) -> str:
    """Returns the error for a folder in which agents of another process run."""
    return f"agents of this token run here already, in {folder}: give further ones another --folder"


def remove_key(folder: Path) -> None:
    """Removes the secret key of a machine from its folder: the run, or tuning, is over."""
    (RunFolder(folder).keys / "client.key").unlink(missing_ok=True)


def _make_folder(invitation: Invitation, token: Token) -> RunFolder:
    """Creates the folder, with the key of this machine in it."""
    path = invitation.folder or default_folder(invitation.token)
    folder = RunFolder(path)
    # Keys go only into a folder of this user that is empty or has keys from an earlier join.
    owned = path.stat().st_uid == os.getuid() if os.path.exists(path) else True
    if not owned or (os.path.exists(path) and any(path.iterdir()) and not folder.keys.is_dir()):
        raise UsageError(f"folder {path} is not empty: choose another with --folder")
    if folder.in_use:
        raise UsageError(in_use_text(folder))
    try:
        for below in (folder.path, folder.keys, folder.logs, folder.alive):
            below.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(
            folder.keys / "server.pub", f"{token.server_public.decode()}\n", private=True
        )
        if not (folder.keys / "client.key").exists():
            public, secret = zmq.curve_keypair()
            write_atomically(folder.keys / "client.pub", f"{public.decode()}\n", private=True)
            write_atomically(folder.keys / "client.key", f"{secret.decode()}\n", private=True)
    except OSError as error:
        raise UsageError(f"cannot write to {path}: {error.strerror}") from None
    return folder


def _exchange(invitation: Invitation, token: Token, address: str, folder: RunFolder) -> Message:
    fields: dict[str, Any] = {"secret": token.secret}
    if invitation.agents:
        fields["agents"] = invitation.agents
    if invitation.clients:
        fields["clients"] = [name_of(own_client_id(name)) for name in invitation.clients]
    if invitation.algorithm is not None:
        fields["algorithm_sha256"] = file_hash(invitation.algorithm)
    book = AddressBook({ENDPOINT: Address.same(address)})
    try:
        with Client(book, "join", security=Security.load(folder.keys)) as client:
            dealer = client.dealer(ENDPOINT, ANSWERS)
            return dealer.request("join", fields, timeout_seconds=_ANSWER_SECONDS)
    except DeadlineError:
        _refuse_over(invitation.address)
        raise NotNowError(
            f"nothing answers at {address}: is the address right, does the run still go on, and "
            "does a firewall stand between?"
        ) from None
    except AdmissionError:
        raise
    except RefusedError as error:
        raise NotNowError(str(error)) from None


def _write(fields: Mapping[str, Any], folder: RunFolder, algorithm: Path | None) -> Admission:
    config = Config(fields["config"])
    wants = fields.get("wants", "agents")
    book = AddressBook({name: Address.same(at) for name, at in fields["addresses"].items()})
    if algorithm is not None:
        folder.code.mkdir(exist_ok=True)
        name = Path(split_place(str(config.algorithm))[0]).name
        shutil.copyfile(algorithm, folder.code / name)
    if wants == "agents":
        _adapt(config, folder)
        config.dump_file(folder.config)
    write_atomically(folder.addresses, book.dump())
    return Admission(config, tuple(map(str, fields["names"])), book, folder, wants)


def _adapt(config: Config, folder: RunFolder) -> None:
    session = config.session_config
    session.folder = str(folder)
    session.launcher.host, session.launcher.transport = None, "ipc"
    session.tensorplex.start_tensorboard, session.tensorplex.prometheus_port = False, 0
    # The first planned agent is the template of all agents: keep at least one.
    session.agent.num = max(1, int(session.agent.num))
    session.at_end = "exit"
