"""What tests of sockets share: wires of several components in one context."""

import socket as tcp
from collections.abc import Callable
from typing import Any, TypeVar

import zmq

from session.wire import AddressBook, Identity, Wire
from session.wire.socket_state import poll
from tests import polling

DEADLINE_SECONDS = 5.0
ENDPOINTS = ("replay-0.experience", "learner.parameters", "ps.requests")
FINGERPRINT = b"12345678"

T = TypeVar("T")


def free_port() -> int:
    with tcp.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Wires:
    """Makes wires of several components in one context."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.made: list[Wire] = []
        self.strangers: list[zmq.Socket[bytes]] = []

    def make(
        self,
        book: AddressBook,
        name: str = "agent-0",
        fingerprint: bytes = FINGERPRINT,
        **more: Any,
    ) -> Wire:
        wire = Wire(self.context, book, Identity(name, 1, fingerprint), **more)
        self.made.append(wire)
        return wire

    def raw(self, pattern: int, *, connect: str = "", bind: str = "") -> zmq.Socket[bytes]:
        """A socket that need not keep to our protocol."""
        self.strangers.append(self.context.socket(pattern))
        if bind:
            self.strangers[-1].bind(bind)
        else:
            self.strangers[-1].connect(connect)
        return self.strangers[-1]

    def close(self) -> None:
        for stranger in self.strangers:
            stranger.close(0)
        for wire in self.made:
            wire.close(0)
        self.context.destroy(0)


def until(look: Callable[[], T | None]) -> T:
    """Polls as fast as messages arrive."""
    return polling.until(look, step=lambda: poll([], 0.001))
