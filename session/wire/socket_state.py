"""State that the sockets of one component share, and the wait for one of them."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import zmq

from session.line_limit import LineLimit
from session.wire.codec import Identity
from session.wire.endpoint import AddressBook
from session.wire.security import Security
from session.wire.zap_handler import ZapHandler


class Pollable(Protocol):
    """Object that :func:`poll` can wait for; its attributes are those of :class:`Socket`."""

    descriptor: int
    pending: bool
    silent: bool
    looked: bool

    def look(self) -> object:
        """Updates ``pending``."""
        ...


def poll(sockets: Sequence[Pollable], timeout_seconds: float) -> None:
    """Sleeps until one of the sockets can be read, at most ``timeout_seconds``.

    The next :meth:`Socket.readable` of each socket uses the result. libzmq's own poll makes two
    system calls per socket; this makes one for all silent sockets.
    """
    if not sockets:
        # The cached poller is not used: several threads may sleep here, but it serves only one.
        time.sleep(max(0.0, timeout_seconds))
        return
    deadline = time.monotonic() + timeout_seconds
    found = False
    for socket in sockets:
        if not socket.silent:
            socket.look()
            found |= socket.pending
    poller = _poller(tuple([socket.descriptor for socket in sockets]))
    left = 0.0 if found else timeout_seconds
    while True:
        # Only little work follows the wake-up, to keep the latency low.
        signalled = poller.poll(1000 * left)
        for descriptor, _ in signalled:
            for socket in sockets:
                if socket.descriptor == descriptor:
                    socket.look()
                    found |= socket.pending
        if found or not signalled:
            break
        left = max(0.0, deadline - time.monotonic())
    for socket in sockets:
        socket.looked = True


@lru_cache(maxsize=64)
def _poller(descriptors: tuple[int, ...]) -> select.poll:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return poller


class Shared:
    """Addresses, identity, keys and limits of the sockets of one component.

    Args:
        context: the one context of this process.
        addresses: address of each endpoint.
        identity: stamped on every message.
        max_message_bytes: maximum size of a message; both sides refuse larger ones.
        stopping: returns True once waiting must end.
        pause: called with sockets and a time [s] while a request waits; the serial launcher runs
            the other components in it.
        on_reject: called with (endpoint, sender name, reason) once per endpoint, sender and kind.
        security: keys of the run, and limits; None: no keys, so sockets bind only to loopback.

    Attributes:
        sockets: The open sockets, in the order of their making.
        knows: sender name -> True if the run has it; binding sockets refuse all others.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        addresses: AddressBook,
        identity: Identity,
        *,
        max_message_bytes: int = 1 << 28,
        stopping: Callable[[], bool] = lambda: False,
        pause: Callable[[Sequence[Any], float], None] = poll,
        on_reject: Callable[[str, str, str], None] = lambda endpoint, sender, reason: None,
        security: Security | None = None,
    ) -> None:
        self.context = context
        self.addresses = addresses
        self.identity = identity
        self.max_message_bytes = max_message_bytes
        self.stopping = stopping
        self.pause = pause
        self.knows: Callable[[str], bool] = lambda name: True
        # Asked only where a connection is missing.
        self.run_over: Callable[[], bool] = lambda: False
        self.security = Security() if security is None else security
        self.sockets: list[Any] = []
        # Endpoint -> bound socket of a component that has ended while its process goes on.
        self.retired: dict[str, zmq.Socket[bytes]] | None = None
        self._zap: ZapHandler | None = None
        self._warnings: list[str] = []
        self._on_reject = on_reject
        self._complaints = LineLimit(time.monotonic, seconds=math.inf)

    @property
    def zap(self) -> ZapHandler:
        """Decides on connections; made for the first socket that is bound with keys."""
        if self._zap is None:
            self._zap = ZapHandler(self.context, self.security)
        return self._zap

    @property
    def ever_connected(self) -> bool:
        """True once any of its sockets has been connected."""
        return any(each.link is not None and each.link.ever_connected for each in self.sockets)

    def add_warning(self, text: str | None) -> None:
        """Keeps a warning for the next :meth:`check`."""
        if text:
            self._warnings.append(text)

    def reject(self, endpoint: str, sender: str, reason: str, *, kind: str = "") -> None:
        """Reports a refused message, once per endpoint, sender and kind.

        All names that no component of this run has count as one sender, so that the record of
        reports is bounded by the names of the run.
        """
        known = sender if self.knows(sender) else ""
        if self._complaints.admit(f"{endpoint}/{known}", kind) is not None:
            self._on_reject(endpoint, sender, reason)

    def close(self, linger_seconds: float = 1.0) -> None:
        """Closes every socket; libzmq sends queued messages for at most ``linger_seconds``."""
        while self.sockets:
            self.sockets[-1].close(linger_seconds)
        if self._zap is not None:
            self._zap.close()
            self._zap = None
