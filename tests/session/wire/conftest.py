"""Address books of every transport, and wires that are closed again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from session.wire import AddressBook
from tests.session.wire.rig import ENDPOINTS, Wires, free_port


@pytest.fixture(params=["inproc", "ipc", "tcp"])
def book(request: pytest.FixtureRequest, tmp_path: Path) -> AddressBook:
    if request.param == "inproc":
        return AddressBook.inproc(ENDPOINTS)
    if request.param == "ipc":
        return AddressBook.ipc(ENDPOINTS, tmp_path / "sockets")
    return AddressBook.tcp({endpoint: free_port() for endpoint in ENDPOINTS})


@pytest.fixture
def tcp_book() -> AddressBook:
    return AddressBook.tcp({endpoint: free_port() for endpoint in ENDPOINTS})


@pytest.fixture
def wires() -> Iterator[Wires]:
    made = Wires()
    yield made
    made.close()
