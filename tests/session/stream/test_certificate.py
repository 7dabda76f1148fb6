"""Self-signed certificates: a client that knows the fingerprint trusts exactly this one."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from session.errors import UsageError
from session.stream.tls import server_context, write_certificate

pytest.importorskip("cryptography")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "trainer.example.org"])
def test_A3_a_server_can_use_the_pair(tmp_path: Path, host: str) -> None:
    certificate, key, fingerprint = write_certificate(tmp_path / "keys", host)
    server_context(certificate, key)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert hashlib.sha256(der).hexdigest() == fingerprint
    assert [path.stat().st_mode & 0o777 for path in (certificate, key)] == [0o600, 0o600]
    # Clients without a fingerprint check the name.
    client = ssl.create_default_context(cafile=str(certificate))
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    mine = client.wrap_bio(received, sent, server_hostname=host)
    theirs = server_context(certificate, key).wrap_bio(sent, received, server_side=True)
    for end in (mine, theirs, mine, theirs):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert mine.version() in ("TLSv1.2", "TLSv1.3")


def test_A3_each_pair_is_new(tmp_path: Path) -> None:
    assert write_certificate(tmp_path, "a")[2] != write_certificate(tmp_path, "a")[2]


@pytest.mark.parametrize("host", ["", "ö" * 3, "a" * 65])
def test_A3_a_host_that_is_none_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="is no host for a certificate"):
        write_certificate(tmp_path, host)
    assert not list(tmp_path.iterdir())
