"""Agents of other machines in the table: from Tensorplex, where somebody was invited."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.folder import RunFolder
from session.launchers.control_client import count_joined_rows
from session.wire import AddressBook, Identity, Wire
from session.wire.requests import RouterSocket
from session.wire.security import Security, write_keys
from session.wire.socket_state import poll
from tests.session.wire.rig import free_port

ROWS = [
    {"name": "agent-0", "state": "running", "age_seconds": 0.1},
    {"name": "agent-1000", "state": "running", "age_seconds": 0.5},
    {"name": "agent-1001", "state": "done", "age_seconds": 7.0},
    {"name": "agent-1002", "state": "silent", "age_seconds": 90.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with keys, to which somebody was invited."""
    made = RunFolder(tmp_path)
    write_keys(made.keys)
    (made.keys / "tokens").mkdir()
    book = AddressBook.tcp({"tensorplex.requests": free_port()})
    made.addresses.write_text(book.dump())
    Config(BASE_CONFIG.to_dict() | {"algorithm": "x"}).dump_file(made.config)
    return made


@pytest.fixture
def tensorplex(folder: RunFolder) -> Iterator[None]:
    """Answers with the rows."""
    context: zmq.Context[Any] = zmq.Context()
    book, security = AddressBook.load(folder.addresses), Security.load(folder.keys)
    fingerprint = bytes.fromhex(folder.read_config().fingerprint()[:16])
    wire = Wire(context, book, Identity("tensorplex", 1, fingerprint), security=security)
    router, ending = wire.router("tensorplex.requests"), threading.Event()
    thread = threading.Thread(target=answer, args=(router, ending))
    thread.start()
    yield
    ending.set()
    thread.join()
    wire.close(0)
    context.destroy(0)


def answer(router: RouterSocket, ending: threading.Event) -> None:
    while not ending.is_set():
        if (request := router.receive()) is not None:
            router.reply(request, "status", {"components": ROWS})
        poll([router], 0.01)


@pytest.mark.usefixtures("tensorplex")
def test_unsupervised_components_are_those_of_joined_machines(folder: RunFolder) -> None:
    rows = count_joined_rows(folder, {"agent-0"})
    assert [(row.name, row.state, row.age_seconds) for row in rows] == [
        ("agent-1000", "running", 0.5),
        ("agent-1001", "gone", 7.0),
        ("agent-1002", "dead", 90.0),
    ]
    assert {(row.pid, row.doing) for row in rows} == {(0, "on another machine")}


def test_a_dead_tensorplex_hides_them(folder: RunFolder) -> None:
    assert count_joined_rows(folder, set()) == []


def test_without_an_invitation_tensorplex_is_not_asked(folder: RunFolder) -> None:
    (folder.keys / "tokens").rmdir()
    folder.addresses.unlink()
    assert count_joined_rows(folder, set()) == []
