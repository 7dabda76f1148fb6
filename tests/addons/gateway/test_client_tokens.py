"""Tokens and certificates of clients: digests in files, modes, ends, and floods of wrong ones."""

from __future__ import annotations

import hashlib
import json
import ssl
from pathlib import Path

import pytest

from session.addons.gateway.client_tokens import (
    TokenGate,
    add_days,
    read_tokens,
    revoke_token,
    write_certificate,
    write_token,
)
from session.addons.gateway.tls import make_server_context
from session.errors import UsageError


def find(gate: TokenGate, token: str, now: float = 0.0, wall: float = 1.0) -> str | None:
    found = gate.find(token, now=now, wall=wall)
    return None if found is None else found.name


def test_a_run_keeps_only_the_digest_of_a_token(tmp_path: Path) -> None:
    folder = tmp_path / "keys" / "clients"
    token = write_token(folder, "robot")
    assert token.startswith("sg1-")
    assert len(token) == 4 + 48
    assert token != write_token(tmp_path, "robot")
    (file,) = folder.iterdir()
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert find(TokenGate(folder), token) == "robot"


@pytest.mark.parametrize("name", ["", "a b", "../a", "A", "a" * 64, "-a", ".a"])
def test_a_token_has_the_name_of_a_file(name: str, tmp_path: Path) -> None:
    for act in (write_token, revoke_token):
        with pytest.raises(UsageError, match="token name"):
            act(tmp_path, name)


def test_a_token_is_for_its_modes_and_until_its_end(tmp_path: Path) -> None:
    acts = write_token(tmp_path, "acts", modes=["act"])
    ends = write_token(tmp_path, "ends", until=add_days(1000.0, 2.0))
    gate = TokenGate(tmp_path)
    modes = {each.name: each.modes for each in read_tokens(tmp_path)}
    # Without a word about it a token is for no evaluation: scores may end a run.
    assert modes == {"acts": ("act",), "ends": ("train", "act")}
    assert find(gate, acts) == "acts"
    assert find(gate, ends, wall=1000.0 + 2 * 86_400 - 1) == "ends"
    assert find(gate, ends, wall=1000.0 + 2 * 86_400) is None
    assert add_days(1000.0, 0.0) == 0.0


@pytest.mark.parametrize("token", ["", "sg1-", "robot", "sg1-" + "0" * 48])
def test_wrong_tokens_are_refused(token: str, tmp_path: Path) -> None:
    write_token(tmp_path, "robot")
    assert find(TokenGate(tmp_path), token) is None


def test_new_and_revoked_tokens_are_noticed(tmp_path: Path) -> None:
    gate = TokenGate(tmp_path / "later")
    assert find(gate, "sg1-") is None
    token = write_token(tmp_path / "later", "robot")
    assert find(gate, token, now=1.9) is None
    assert find(gate, token, now=2.0) == "robot"
    assert [each.name for each in gate.list_valid(now=3.0, wall=1.0)] == ["robot"]
    revoke_token(tmp_path / "later", "robot")
    assert not gate.list_valid(now=5.0, wall=1.0)
    assert find(gate, token, now=5.0) is None
    with pytest.raises(UsageError, match="no token 'robot'; there are: none"):
        revoke_token(tmp_path / "later", "robot")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"sha256": "a", "modes": 1, "until": 0}',
        '{"sha256": "a", "modes": []}',
    ],
)
def test_a_damaged_file_is_no_token(text: str, tmp_path: Path) -> None:
    token = write_token(tmp_path, "robot")
    (tmp_path / "damaged").write_text(text)
    assert [each.name for each in read_tokens(tmp_path)] == ["robot"]
    assert find(TokenGate(tmp_path), token) == "robot"
    (tmp_path / "half.new").write_text(json.dumps({}))
    assert len(read_tokens(tmp_path)) == 1


# -- certificates


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "trainer.example.org"])
def test_a_server_can_use_a_written_certificate(tmp_path: Path, host: str) -> None:
    certificate, key, fingerprint = write_certificate(tmp_path / "keys", host)
    make_server_context(certificate, key)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert hashlib.sha256(der).hexdigest() == fingerprint
    assert [path.stat().st_mode & 0o777 for path in (certificate, key)] == [0o600, 0o600]
    # Clients without a fingerprint check the name.
    client = ssl.create_default_context(cafile=str(certificate))
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(received, sent, server_hostname=host)
    theirs = make_server_context(certificate, key).wrap_bio(sent, received, server_side=True)
    for end in (mine, theirs, mine, theirs):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert mine.version() in ("TLSv1.2", "TLSv1.3")


def test_each_certificate_is_new(tmp_path: Path) -> None:
    assert write_certificate(tmp_path, "a")[2] != write_certificate(tmp_path, "a")[2]


@pytest.mark.parametrize("host", ["", "ö" * 3, "a" * 65])
def test_a_certificate_for_no_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="is no host for a certificate"):
        write_certificate(tmp_path, host)
    assert not list(tmp_path.iterdir())
