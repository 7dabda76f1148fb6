"""Endpoints by name and the book that says where each one is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from session.errors import ConfigError

IPC = "ipc://"
_TRANSPORTS = ("inproc://", IPC, "tcp://")
_IPC_PATH_LIMIT = 107
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where one endpoint is: ``bind`` is the owner's side, ``connect`` everyone else's."""

    bind: str
    connect: str

    @classmethod
    def same(cls, text: str) -> Address:
        """The address whose two sides are spelled alike."""
        return cls(text, text)


class AddressBook(Mapping[str, Address]):
    """Endpoint name -> address, such as ``replay-0.experience``; what ``addresses.json`` holds.

    Raises:
        ConfigError: an address has no known transport, or an ipc path is too long for the kernel.
    """

    def __init__(self, addresses: Mapping[str, Address]) -> None:
        for endpoint, address in addresses.items():
            for text in (address.bind, address.connect):
                _check(endpoint, text)
        self._addresses = dict(addresses)

    @classmethod
    def inproc(cls, endpoints: Iterable[str]) -> AddressBook:
        """Everything in this process, for the serial launcher."""
        return cls({name: Address.same(f"inproc://{name}") for name in endpoints})

    @classmethod
    def ipc(cls, endpoints: Iterable[str], folder: Path) -> AddressBook:
        """One socket file per endpoint below a private folder."""
        return cls({name: Address.same(f"ipc://{folder / name}") for name in endpoints})

    @classmethod
    def tcp(cls, ports: Mapping[str, int], host: str = LOOPBACK) -> AddressBook:
        """Endpoint name -> port of an address of this machine."""
        return cls({name: Address.same(f"tcp://{host}:{port}") for name, port in ports.items()})

    @classmethod
    def load(cls, path: Path) -> AddressBook:
        """Reads ``addresses.json``; ``$(NAME)`` in a bind address is a variable of this process.

        So that what binds in a pod binds to the pod's own address, and to no other.

        Raises:
            ConfigError: the file is not there or is not an address book.
        """
        try:
            entries = json.loads(path.read_text())
            book = {
                name: Address(_expanded(e["bind"]), e["connect"]) for name, e in entries.items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{path}: not an address book ({error})") from None
        return cls(book)

    def dump(self) -> str:
        """The book as the text of ``addresses.json``."""
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


def _expanded(text: str) -> str:
    """With its variables replaced; one that is not set stays, for only an owner binds."""
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), text)


def _check(endpoint: str, text: str) -> None:
    if not text.startswith(_TRANSPORTS):
        known = ", ".join(_TRANSPORTS)
        raise ConfigError(f"address '{text}' of {endpoint}: the transport must be one of {known}")
    path = text.removeprefix(IPC)
    if path != text and len(path.encode()) > _IPC_PATH_LIMIT:
        raise ConfigError(f"ipc path '{path}' of {endpoint} is longer than {_IPC_PATH_LIMIT} bytes")
