"""Keys of a run and the addresses that need them: CURVE on TCP, no keys on ipc and inproc.

All components that bind share one pair of keys. All that connect share another, which has all
rights. A machine that joins later has its own pair: ``allowed/`` holds its public key and its
rights. If a run makes keys for single roles, each role has a pair, too.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from session.atomic_file import write_atomically
from session.errors import ConfigError, UsageError
from session.json_file import read_file
from session.wire.roles import EVERYTHING, SHARED, Grant

if TYPE_CHECKING:
    from session.config import Config

KEY_FILES = ("server.pub", "server.key", "client.pub", "client.key")
ALLOWED = "allowed"

_KEY = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
TCP = "tcp://"


def make_keys(*roles: str) -> dict[str, str]:
    """Makes new keys of a run: file name -> content, a key in Z85 and a line end.

    Args:
        roles: roles with their own pair, such as ``agent``: ``agent.pub``, ``agent.key``.
    """
    keys: dict[str, str] = {}
    for owner in ("server", "client", *roles):
        public, secret = zmq.curve_keypair()
        keys |= {f"{owner}.pub": f"{public.decode()}\n", f"{owner}.key": f"{secret.decode()}\n"}
    return keys


def write_keys(folder: Path, keys: Mapping[str, str] | None = None) -> None:
    """Writes keys into a folder that only its owner can enter; keeps existing keys.

    Args:
        folder: folder of the keys, such as ``RunFolder.keys``.
        keys: keys from :func:`make_keys`; None: new ones.

    Raises:
        UsageError: the folder holds only a part of the keys, or cannot be written.
    """
    keys = make_keys() if keys is None else keys
    there = [name for name in keys if (folder / name).exists()]
    if len(there) == len(keys):
        return
    if there:
        missing = ", ".join(name for name in keys if name not in there)
        raise UsageError(f"{folder} has {', '.join(there)}, but no {missing}: remove the folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / ALLOWED).mkdir(mode=0o700, exist_ok=True)
        for name, text in keys.items():
            write_atomically(folder / name, text, private=True)
    except OSError as error:
        raise UsageError(f"cannot write keys into {folder}: {error.strerror}") from None


def allow(folder: Path, public_key: str, grant: Grant) -> None:
    """Adds a client key; a running run accepts it from now on.

    Args:
        folder: folder of the run's keys.
        public_key: public key in Z85.
        grant: the rights.
    """
    (folder / ALLOWED).mkdir(mode=0o700, exist_ok=True)
    text = f"{public_key}\n{grant.encode()}\n"
    write_atomically(_key_file(folder, public_key), text, private=True)


def disallow(folder: Path, public_key: str) -> None:
    """Removes a client key: its next connections are refused.

    Args:
        folder: folder of the run's keys.
        public_key: public key in Z85.
    """
    _key_file(folder, public_key).unlink(missing_ok=True)


def _key_file(folder: Path, public_key: str) -> Path:
    name = hashlib.sha256(public_key.encode()).hexdigest()[:16]
    return folder / ALLOWED / f"{name}.pub"


# Time limit of a peer's handshake.
HANDSHAKE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Security:
    """Keys and connection limits of the sockets of one component.

    Args:
        folder: folder of the keys; None: no keys.
        server_public: public key of all binding sockets.
        server_secret: secret key of all binding sockets; empty on a machine that only joins.
        client_public, client_secret: keys of this process's connecting sockets.
        insecure: True if sockets may be bound beyond loopback without keys.
        max_connections: maximum open connections of one bound socket.
        handshake_seconds: time limit of a peer's handshake [s].
    """

    folder: Path | None = None
    server_public: bytes = b""
    server_secret: bytes = field(default=b"", repr=False)
    client_public: bytes = b""
    client_secret: bytes = field(default=b"", repr=False)
    insecure: bool = False
    max_connections: int = 1000
    handshake_seconds: float = HANDSHAKE_SECONDS

    @classmethod
    def load(cls, folder: Path, config: Config | None = None) -> Security:
        """Reads the keys in a folder, with the limits of the config.

        Raises:
            ConfigError: a key is missing or invalid.
        """
        server_secret = folder / "server.key"
        return cls(
            folder,
            _read(folder / "server.pub"),
            _read(server_secret) if server_secret.exists() else b"",
            _read(folder / "client.pub"),
            _read(folder / "client.key"),
        ).limited(config)

    @classmethod
    def of_run(cls, folder: Path | None, config: Config) -> Security:
        """Makes the Security of a run: its keys, if it has some, and its limits.

        Args:
            folder: folder that may hold keys, such as ``RunFolder.keys``.
            config: the resolved experiment.

        Raises:
            ConfigError: a key is missing or invalid.
        """
        if folder is not None and (folder / "server.pub").exists():
            return cls.load(folder, config)
        return cls().limited(config)

    def limited(self, config: Config | None) -> Security:
        """Returns a copy with the limits of a config; missing limits have defaults."""
        limits = config.session_config.get("security") if config is not None else None
        return self if limits is None else replace(self, **limits)

    def __bool__(self) -> bool:
        return bool(self.server_public)

    def grant(self, key: bytes) -> Grant | None:
        """Returns the rights of a client key (in Z85), None if it is not allowed.

        Reads the files at each call, so that a key can be revoked.
        """
        if key and key == self.client_public:
            return EVERYTHING
        return self._grant().get(key)

    def _grant(self) -> dict[bytes, Grant]:
        folder = self.folder
        if folder is None:
            return {}
        found = {_line(folder / f"{role}.pub"): grant for role, grant in SHARED.items()}
        try:
            files = [path for path in (folder / ALLOWED).iterdir() if path.name[0] != "."]
            lines = [read_file(path).decode(errors="replace").splitlines() for path in files]
        except OSError:
            # A file was removed meanwhile, or a Kubernetes Secret has no such folder.
            lines = []
        # A key file of an earlier version has no second line; such a key has no rights.
        found |= {each[0].encode(): Grant.decode("".join(each[1:2])) for each in lines if each}
        return {key: grant for key, grant in found.items() if key}

    def check_bind(self, endpoint: str, address: str) -> str | None:
        """Refuses an address that other machines can reach, unless keys protect it.

        Returns a warning if ``insecure`` allows it, else None.

        Raises:
            UsageError: no keys beyond loopback, or no secret key for binding.
        """
        if not address.startswith(TCP):
            return None
        if self and not self.server_secret:
            raise UsageError(
                f"cannot bind {endpoint} to {address}: {self.folder} has no server.key"
            )
        if self or is_loopback(address):
            return None
        if not self.insecure:
            raise UsageError(
                f"{endpoint} would be bound to {address}, beyond this machine, without keys: "
                "launch with --host, which makes them, or give --keys FOLDER; "
                "or accept that anybody can connect, with --insecure"
            )
        return f"insecure: {endpoint} is bound to {address}, where anybody can connect"


def is_loopback(address: str) -> bool:
    """True for a ``tcp://`` address to which only this machine can connect."""
    host = address.removeprefix(TCP).rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> bytes:
    try:
        key = read_file(path).strip()
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
    if not _KEY.fullmatch(key):
        raise ConfigError(f"{path} holds no key: expected 40 characters of Z85")
    return key


def _line(path: Path) -> bytes:
    """Reads the key in a file, empty if there is none."""
    try:
        return read_file(path).strip()
    except OSError:
        return b""
