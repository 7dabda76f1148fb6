"""Access of clients from outside: tokens, the certificate of a port, and where it is required.

A run keeps only the digests of tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from session.atomic_file import write_atomically
from session.config import Config
from session.errors import ConfigError, MissingExtra, UsageError
from session.json_file import NUMBER, TEXT, Leaf, read_object

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

_LOCALHOST = "localhost"


def check_address(gateway: Config, *, insecure: bool) -> None:
    """Rejects a port that strangers could use, and half a certificate.

    Args:
        gateway: Section ``session_config.gateway``.
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


# -- tokens

_PREFIX = "sg1-"
_SECRET_BYTES = 24
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HEX = re.compile(r"[0-9a-f]{64}")
_SHAPE = {
    # Ascii, as hmac.compare_digest asks for.
    "sha256": Leaf("64 hexadecimal digits", lambda v: type(v) is str and bool(_HEX.fullmatch(v))),
    "modes": [TEXT],
    "until": NUMBER,
}
# Not `evaluate`: scores may end a run.
DEFAULT_MODES = ("train", "act")
_DAY_SECONDS = 86_400.0
_READ_SECONDS = 2.0


class ClientToken(NamedTuple):
    """Record that a run keeps of a token.

    Args:
        name: Name of its file.
        digest: SHA-256 digest of the token, in hex.
        modes: Modes for which it is valid; none, in a file of an earlier release: for all.
        until: Wall clock in seconds at which it ends; 0: never.
    """

    name: str
    digest: str
    modes: tuple[str, ...]
    until: float


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write_token(
    folder: Path, name: str, *, modes: Sequence[str] = DEFAULT_MODES, until: float = 0.0
) -> str:
    """Makes a token and keeps its digest in a file that only the owner can read.

    Args:
        folder: Folder of all tokens of a run.
        name: Name of the client; a token of the same name is replaced.
        modes, until: See :class:`ClientToken`.

    Returns:
        The token, which is kept nowhere.

    Raises:
        UsageError: the name is invalid.
    """
    path = _path(folder, name)
    token = _PREFIX + secrets.token_hex(_SECRET_BYTES)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = {"sha256": _digest(token), "modes": list(modes), "until": until}
    write_atomically(path, json.dumps(content), private=True)
    return token


def revoke_token(folder: Path, name: str) -> None:
    """Removes a token.

    Raises:
        UsageError: there is none of this name.
    """
    try:
        _path(folder, name).unlink()
    except FileNotFoundError:
        known = ", ".join(sorted(each.name for each in read_tokens(folder))) or "none"
        raise UsageError(f"no token '{name}'; there are: {known}") from None


def _path(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"token name '{name}': use lower case letters, digits and hyphens, at most 63 of them"
        )
    return folder / name


def read_tokens(
    folder: Path, note: Callable[[str], object] = lambda text: None
) -> list[ClientToken]:
    """Returns all tokens; files that are none are left out.

    Args:
        folder: Folder of all tokens of a run.
        note: Function called with one line for each damaged file.
    """
    found = []
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        if not _NAME.fullmatch(path.name):
            continue
        try:
            content = read_object(path, _SHAPE)
        except ConfigError as error:
            note(str(error))
            continue
        modes, until = tuple(content["modes"]), float(content["until"])
        found.append(ClientToken(path.name, content["sha256"], modes, until))
    return found


class TokenGate:
    """Checks the tokens of clients; notices new and revoked ones within two seconds.

    Args:
        folder: Folder of all tokens of a run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokens: list[ClientToken] = []
        self._read_at = -_READ_SECONDS

    def find(self, token: str, *, now: float, wall: float) -> ClientToken | None:
        """Returns a valid token, else None; each takes the same time.

        Args:
            token: Token as a client gave it.
            now: Monotonic time in seconds.
            wall: Wall clock in seconds.
        """
        digest, found = _digest(token), None
        for each in self.list_valid(now=now, wall=wall):
            if hmac.compare_digest(each.digest, digest):
                found = each
        return found

    def list_valid(self, *, now: float, wall: float) -> list[ClientToken]:
        """Returns the tokens that were not revoked, and have not ended."""
        if now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._tokens = read_tokens(self._folder)
        return [each for each in self._tokens if not 0 < each.until <= wall]


def add_days(wall: float, days: float) -> float:
    """Returns the wall clock so many days later; 0 days: 0, never."""
    return wall + days * _DAY_SECONDS if days else 0.0


# -- certificates

_DAYS = 3650


def write_certificate(folder: Path, host: str) -> tuple[Path, Path, str]:
    """Makes a key and its certificate, which is valid for ten years.

    Args:
        folder: Folder for ``gateway.crt`` and ``gateway.key``, in PEM; both are replaced.
        host: Name or address under which clients connect.

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
        write_atomically(paths[0], certificate.public_bytes(pem), private=True)
        write_atomically(paths[1], secret, private=True)
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
