"""Sleep until a socket can be read."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol


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
