"""A self-signed certificate for a port, which clients recognize by its SHA-256."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from session.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

_DAYS = 3650


def write_certificate(folder: Path, host: str) -> tuple[Path, Path, str]:
    """Makes a key and its certificate, which is valid for ten years.

    Args:
        folder: gets ``gateway.crt`` and ``gateway.key``, in PEM; others there are replaced.
        host: name or address under which clients connect.

    Returns:
        Both files, and the SHA-256 of the certificate, in hex.

    Raises:
        MissingExtra: the package ``cryptography`` is not installed.
        UsageError: the host is no name, or the files cannot be written.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingExtra.named("a certificate", "gateway") from None
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    try:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([_general_name(host)])
    except ValueError as error:
        raise UsageError(f"'{host}' is no host for a certificate: {error}") from None
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "gateway.crt", folder / "gateway.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(paths[0], certificate.public_bytes(pem))
        _write(paths[1], secret)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    der = certificate.public_bytes(serialization.Encoding.DER)
    return *paths, hashlib.sha256(der).hexdigest()


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    """Replaces a file; only its owner can read it."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
