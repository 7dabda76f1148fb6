"""Addresses of endpoints, and the address book that maps endpoint names to them."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from session.errors import ConfigError
from session.json_file import TEXT, MapOf, read_object

IPC = "ipc://"
_TRANSPORTS = ("inproc://", IPC, "tcp://")
_IPC_PATH_LIMIT = 107
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
LOOPBACK = "127.0.0.1"


def is_own_host(host: str, names: Iterable[str] = ()) -> bool:
    """Returns True unless the Host of an HTTP request is a name of another machine.

    Any web page can give a name of its own the address of this machine, and then read the pages
    here; its requests have that name. An address is none.

    Args:
        host: the header, with or without a port.
        names: further names of this machine.
    """
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name.lower() in ("localhost", *(each.lower() for each in names)):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Address:
    """Address of one endpoint: ``bind`` for its owner, ``connect`` for all peers."""

    bind: str
    connect: str

    @classmethod
    def same(cls, text: str) -> Address:
        """Makes an address with equal ``bind`` and ``connect``."""
        return cls(text, text)


class AddressBook(Mapping[str, Address]):
    """Endpoint name (such as ``replay-0.experience``) -> address; stored in ``addresses.json``.

    Raises:
        ConfigError: an address has an unknown transport, or an ipc path too long for the kernel.
    """

    def __init__(self, addresses: Mapping[str, Address]) -> None:
        for endpoint, address in addresses.items():
            for text in (address.bind, address.connect):
                _check(endpoint, text)
        self._addresses = dict(addresses)

    @classmethod
    def inproc(cls, endpoints: Iterable[str]) -> AddressBook:
        """Makes addresses within this process, for the serial launcher."""
        return cls({name: Address.same(f"inproc://{name}") for name in endpoints})

    @classmethod
    def ipc(cls, endpoints: Iterable[str], folder: Path) -> AddressBook:
        """Makes one socket file per endpoint below a private folder."""
        return cls({name: Address.same(f"ipc://{folder / name}") for name in endpoints})

    @classmethod
    def tcp(cls, ports: Mapping[str, int], host: str = LOOPBACK) -> AddressBook:
        """Makes TCP addresses on ``host`` from endpoint name -> port."""
        return cls({name: Address.same(f"tcp://{host}:{port}") for name, port in ports.items()})

    @classmethod
    def load(cls, path: Path) -> AddressBook:
        """Reads ``addresses.json``; ``$(NAME)`` in a bind address is an environment variable.

        This lets a component in a pod bind only to the pod's own address.

        Raises:
            ConfigError: the file is missing or is not an address book.
        """
        try:
            entries = read_object(path, MapOf({"bind": TEXT, "connect": TEXT}))
            return cls({n: Address(expand(e["bind"]), e["connect"]) for n, e in entries.items()})
        except ConfigError as error:
            raise ConfigError(f"{path}: not an address book ({error})") from None

    def dump(self) -> str:
        """Returns the text of ``addresses.json``."""
        book = {n: {"bind": a.bind, "connect": a.connect} for n, a in self._addresses.items()}
        return json.dumps(book, indent=2) + "\n"

    def __getitem__(self, endpoint: str) -> Address:
        if endpoint not in self._addresses:
            known = ", ".join(sorted(self._addresses))
            raise ConfigError(f"no address for endpoint '{endpoint}'; the book has {known}")
        return self._addresses[endpoint]

    def __iter__(self) -> Iterator[str]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, endpoint: object) -> bool:
        return endpoint in self._addresses


def expand(text: str) -> str:
    """Replaces ``$(NAME)`` by environment variables; an unset one stays.

    The address book of a pod has the addresses of other pods too, which only their owners bind.
    """
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), text)


def _check(endpoint: str, text: str) -> None:
    if not text.startswith(_TRANSPORTS):
        known = ", ".join(_TRANSPORTS)
        raise ConfigError(f"address '{text}' of {endpoint}: the transport must be one of {known}")
    path = text.removeprefix(IPC)
    if path != text and len(path.encode()) > _IPC_PATH_LIMIT:
        raise ConfigError(f"ipc path '{path}' of {endpoint} is longer than {_IPC_PATH_LIMIT} bytes")
