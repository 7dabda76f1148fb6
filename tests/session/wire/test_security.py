"""Keys: written for their owner only, read strictly, and needed wherever others could connect."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import ConfigError, UsageError
from session.wire import Address, AddressBook
from session.wire.roles import AGENT, EVALUATOR, EVERYTHING, GUEST, Grant
from session.wire.security import (
    KEY_FILES,
    Security,
    allow,
    is_loopback,
    make_keys,
    write_keys,
)
from tests.session.wire.rig import Wires, free_port, until

OUTSIDE = "tcp://192.0.2.1:7000"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_two_pairs() -> None:
    keys = make_keys()
    assert tuple(keys) == KEY_FILES
    assert len(set(keys.values())) == 4
    assert all(re.fullmatch(r"\S{40}\n", text) for text in keys.values())
    assert not set(keys.values()) & set(make_keys().values())


def test_only_their_owner_can_read_keys(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_keys(tmp_path / "run" / "keys")
    finally:
        os.umask(before)
    folder = tmp_path / "run" / "keys"
    assert {mode(folder), mode(folder / "allowed")} == {0o700}
    assert {path.name: mode(path) for path in folder.iterdir() if path.is_file()} == dict.fromkeys(
        KEY_FILES, 0o600
    )


def test_keys_that_are_there_stay(tmp_path: Path) -> None:
    write_keys(tmp_path)
    before = {name: (tmp_path / name).read_text() for name in KEY_FILES}
    write_keys(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in KEY_FILES} == before
    (tmp_path / "client.key").unlink()
    with pytest.raises(UsageError, match=r"has server\.pub.*, but no client\.key"):
        write_keys(tmp_path)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write keys into .*: Not a directory"):
        write_keys(tmp_path / "file" / "keys")


def test_security_reads_what_was_written(tmp_path: Path) -> None:
    keys = make_keys()
    write_keys(tmp_path, keys)
    security = Security.load(tmp_path)
    read = (
        security.server_public,
        security.server_secret,
        security.client_public,
        security.client_secret,
    )
    assert read == tuple(text.strip().encode() for text in keys.values())
    assert security
    assert all(keys[name].strip() not in repr(security) for name in ("server.key", "client.key"))


def test_the_config_sets_the_limits(tmp_path: Path) -> None:
    write_keys(tmp_path)
    config = Config({"session_config": BASE_CONFIG.session_config.to_dict()})
    config.session_config.security.max_connections = 7
    assert Security.of_run(tmp_path, config).max_connections == 7
    without = Security.of_run(tmp_path / "none", config)
    assert not without
    assert without.max_connections == 7
    assert Security.of_run(None, Config({"session_config": {}})) == Security()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("server.pub", None, r"cannot read the key .*server\.pub: No such file"),
        ("client.key", None, r"cannot read the key .*client\.key: No such file"),
        ("client.pub", "short\n", r"client\.pub holds no key: expected 40 characters of Z85"),
        ("client.pub", "'" * 40, r"client\.pub holds no key"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    write_keys(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        Security.load(tmp_path)


def test_allowed_keys_are_looked_up_each_time(tmp_path: Path) -> None:
    write_keys(tmp_path)
    security, key = Security.load(tmp_path), make_keys()["client.pub"].strip()
    assert security.grant(security.client_public) == EVERYTHING
    assert security.grant(key.encode()) is None
    grant = Grant(GUEST, ("agent-1000", "agent-1001"))
    allow(tmp_path, key, grant)
    assert security.grant(key.encode()) == grant
    (file,) = (tmp_path / "allowed").iterdir()
    assert mode(file) == 0o600
    file.unlink()
    assert security.grant(key.encode()) is None
    (tmp_path / "allowed").rmdir()
    assert security.grant(key.encode()) is None
    assert security.grant(b"") is None
    assert security.grant(security.client_public) == EVERYTHING


def test_a_key_that_was_allowed_without_a_role_may_do_nothing(tmp_path: Path) -> None:
    write_keys(tmp_path)
    key = make_keys()["client.pub"]
    (tmp_path / "allowed" / "of-an-earlier-version.pub").write_text(key)
    granted = Security.load(tmp_path).grant(key.strip().encode())
    assert granted is not None
    assert not granted.enters("ps.requests")


def test_a_role_may_have_keys_of_its_own(tmp_path: Path) -> None:
    keys = make_keys(AGENT, EVALUATOR)
    write_keys(tmp_path, keys)
    security = Security.load(tmp_path)
    for role in (AGENT, EVALUATOR):
        granted = security.grant(keys[f"{role}.pub"].strip().encode())
        assert granted is not None
        assert granted.role == role


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://localhost:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://192.0.2.1:1", False),
        ("tcp://eth0:1", False),
        ("tcp://node-7:1", False),
        ("tcp://0.0.0" + ".0:1", False),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_beyond_loopback_keys_are_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ps\.requests would be bound to .* without keys: launch"):
        Security().check_bind("ps.requests", OUTSIDE)
    warning = Security(insecure=True).check_bind("ps.requests", OUTSIDE)
    assert warning == f"insecure: ps.requests is bound to {OUTSIDE}, where anybody can connect"
    write_keys(tmp_path)
    assert Security.load(tmp_path).check_bind("ps.requests", OUTSIDE) is None
    for private in ("ipc:///tmp/x", "inproc://x", "tcp://127.0.0.1:5"):
        assert Security().check_bind("ps.requests", private) is None


def test_a_joined_machine_cannot_bind(tmp_path: Path) -> None:
    write_keys(tmp_path)
    (tmp_path / "server.key").unlink()
    with pytest.raises(UsageError, match=r"cannot bind ps\.requests .* has no server\.key"):
        Security.load(tmp_path).check_bind("ps.requests", "tcp://127.0.0.1:5")


def test_a_wire_without_keys_does_not_bind_beyond_loopback(wires: Wires) -> None:
    book = AddressBook({"ps.requests": Address.same(OUTSIDE)})
    with pytest.raises(UsageError, match="beyond this machine, without keys"):
        wires.make(book).router("ps.requests")


def test_an_insecure_wire_says_so(wires: Wires) -> None:
    # This machine can bind to any address of the loopback network only: pretend it is outside.
    address = f"tcp://localhost.:{free_port()}"
    book = AddressBook({"ps.requests": Address.same(address)})
    wire = wires.make(book, security=Security(insecure=True))
    with pytest.raises(UsageError, match="cannot bind"):
        wire.router("ps.requests")
    assert until(wire.check) == [
        f"insecure: ps.requests is bound to {address}, where anybody can connect"
    ]
    assert wire.check() == []
