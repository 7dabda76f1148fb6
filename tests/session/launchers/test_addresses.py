"""Where endpoints are: on this machine only, at an address of it, or on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.launchers.launcher import (
    SUPERVISOR_CONTROL,
    free_ports,
    make_addresses,
    protect,
    resolve_host,
)
from session.process.component import Component, Topology
from session.wire import AddressBook
from session.wire.security import KEY_FILES

PS = Component("ps", "ps", "main.ps", binds=("ps.requests", "ps.join"))
AGENT = Component("agent-1000", "agent", "main.agent", 1000, connects=("ps.requests",))


def make_config(host: str | None = None, *, insecure: bool = False) -> Config:
    config = Config({"session_config": BASE_CONFIG.session_config.to_dict()})
    config.session_config.launcher.host = host
    config.session_config.security.insecure = insecure
    return config


def test_with_a_host_everything_but_commands_is_bound_to_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    book = make_addresses(Topology([PS]), make_config("127.0.0.1"), folder)
    assert book[SUPERVISOR_CONTROL].bind == f"ipc://{folder.sockets / SUPERVISOR_CONTROL}"
    for endpoint in PS.binds:
        assert book[endpoint].bind == book[endpoint].connect
        assert book[endpoint].bind.startswith("tcp://127.0.0.1:")
    assert len({address.bind for address in book.values()}) == 3


def test_a_name_becomes_an_address(tmp_path: Path) -> None:
    assert resolve_host("localhost") == "127.0.0.1"
    book = make_addresses(Topology([PS]), make_config("localhost"), RunFolder(tmp_path))
    assert book["ps.requests"].bind.startswith("tcp://127.0.0.1:")


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("no-such-host.invalid", r"no host 'no-such-host\.invalid'"),
        ("0.0.0" + ".0", "stands for all addresses at once"),
    ],
)
def test_a_host_that_cannot_be_is_refused(host: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_host(host)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"cannot bind to 192\.0\.2\.200: .*ip addr shows them"):
        free_ports(["x"], "192.0.2.200")


def test_endpoints_outside_stay_where_they_are(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    theirs = AddressBook.tcp({"ps.requests": 7000}, "192.0.2.1")
    folder.addresses.write_text(theirs.dump())
    book = make_addresses(Topology([AGENT], outside=["ps.requests"]), make_config(), folder)
    assert book["ps.requests"] == theirs["ps.requests"]
    assert set(book) == {"ps.requests", SUPERVISOR_CONTROL}
    with pytest.raises(
        ConfigError, match=r"agent-1000 connects to ps\.requests: no component binds it"
    ):
        Topology([AGENT])


def test_keys_are_written_where_others_can_connect(tmp_path: Path) -> None:
    for name, config in (
        ("local", make_config()),
        ("insecure", make_config("127.0.0.1", insecure=True)),
    ):
        protect(RunFolder(tmp_path / name), config)
        assert not (tmp_path / name).exists()
    folder = RunFolder(tmp_path / "hosted")
    protect(folder, make_config("127.0.0.1"))
    before = {name: (folder.keys / name).read_text() for name in KEY_FILES}
    # A resumed run keeps them, and with them the machines that have joined.
    protect(folder, make_config("127.0.0.1"))
    assert {name: (folder.keys / name).read_text() for name in KEY_FILES} == before


def test_served_ports_are_in_the_topology_of_the_run() -> None:
    gateway = Component("gateway-0", "gateway", "main.gateway", serves={"clients": 7100})
    again = Topology.from_dict(Topology([gateway]).to_dict())
    assert again["gateway-0"] == gateway
