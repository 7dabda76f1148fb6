"""TLS of one connection, on memory buffers; its certificates, and where it is required."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from session.config import Config
from session.errors import ConfigError, DecodeError, MissingExtra, UsageError

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

_LOCALHOST = "localhost"


def check_address(gateway: Config, *, insecure: bool) -> None:
    """Rejects a port that strangers could use, and half a certificate.

    Args:
        gateway: ``session_config.gateway``.
        insecure: True if any host is allowed.

    Raises:
        ConfigError: says what to set.
    """
    cert, key = gateway.tls.cert, gateway.tls.key
    if (cert is None) != (key is None):
        missing = "key" if key is None else "cert"
        raise ConfigError(f"session_config.gateway.tls.{missing} is null: TLS needs cert and key")
    for name, path in (("cert", cert), ("key", key)):
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"session_config.gateway.tls.{name}: there is no file {path}")
    encrypted = cert is not None or gateway.plaintext
    if not (_is_loopback(gateway.host) or insecure or (gateway.tokens and encrypted)):
        raise ConfigError(
            f"session_config.gateway.host is {gateway.host}, which other machines can reach: set "
            "gateway.tokens to true and gateway.tls, or gateway.plaintext to true if something in "
            "front encrypts, or security.insecure to true"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == _LOCALHOST or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_READ_BYTES = 1 << 16


def server_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """Returns the settings of a TLS server, version 1.2 or newer.

    Args:
        certificate, key: files in PEM.

    Raises:
        ConfigError: a file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the TLS certificate {certificate} with the key {key} cannot be used: {error}"
        ) from None
    return context


class TlsLayer:
    """Encrypts and decrypts the bytes of one connection.

    Args:
        context: of :func:`server_context`.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._open = False

    def decrypted(self, data: bytes) -> bytes:
        """Returns the plain bytes that received ones complete.

        Raises:
            DecodeError: they are not valid TLS.
        """
        self._received.write(data)
        parts = []
        try:
            if not self._open:
                self._object.do_handshake()
                self._open = True
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise DecodeError(f"the TLS connection failed: {error.reason}") from None
        return b"".join(parts)

    def encrypted(self, data: bytes) -> bytes:
        """Returns the bytes to send for plain ones, handshake messages before them."""
        if data and self._open:
            try:
                self._object.write(data)
            except ssl.SSLError:
                # The client has closed its side.
                return b""
        return self._to_send.read()


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
