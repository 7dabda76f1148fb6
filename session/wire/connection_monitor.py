"""What becomes of the connection of a socket that connects: made, lost, refused, or never there.

Decided from events alone; a refused client otherwise sees nothing but silence.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from itertools import count

import zmq

MADE = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
LOST = int(zmq.EVENT_DISCONNECTED)
WRONG_KEY = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
WRONG_PROTOCOL = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
BROKEN_OFF = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
ACCEPTED = int(zmq.EVENT_ACCEPTED)
STOPPED = int(zmq.EVENT_MONITOR_STOPPED)

OTHER_MECHANISM = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
# One broken handshake may be a server that just then ended.
_BREAKS = 4
_BREAK_SECONDS = 1.5
# The handshake took too long: somebody is there, but has no time.
_SILENCE = (errno.EAGAIN, errno.ETIMEDOUT)
_LONELY_SECONDS = 5.0
# As a plain number: an operation on zmq's own flags costs as much as the call itself.
_POLLIN = int(zmq.POLLIN)

_numbers = count()


class Monitor:
    """The events of one socket's connections.

    Args:
        raw: the socket.
        events: which ones, a sum of ``zmq.EVENT_*``.
    """

    def __init__(self, raw: zmq.Socket[bytes], events: int) -> None:
        self._watched = raw
        address = f"inproc://monitor-{id(raw)}-{next(_numbers)}"
        self.raw: zmq.Socket[bytes] = raw.context.socket(zmq.PAIR)
        # libzmq waits when this queue is full, and all its other sockets with it.
        self.raw.setsockopt(zmq.RCVHWM, 0)
        self.raw.setsockopt(zmq.LINGER, 0)
        raw.monitor(address, events)
        self.raw.connect(address)

    def events(self) -> Iterator[tuple[int, int]]:
        """Yields number and value of what has happened since the last call."""
        while int(self.raw.getsockopt(zmq.EVENTS)) & _POLLIN:
            # By hand, for zmq.utils.monitor imports asyncio.
            event = self.raw.recv_multipart()[0]
            yield (
                int.from_bytes(event[:2], sys.byteorder),
                int.from_bytes(event[2:6], sys.byteorder),
            )

    def close(self) -> None:
        """Ends the watch; the socket itself must still be open."""
        self._watched.disable_monitor()
        self.raw.close(0)


class ConnectionMonitor:
    """The connection of one socket that connects.

    Args:
        where: endpoint and address, for what is said of it.
        has_keys: this side uses keys.
        now: the time, on any clock in seconds.

    Attributes:
        connected, ever_connected: now, and at any time.
        refusal: why it was not let in, and never will be.
        suspicion: why it might not be; a peer or a network that fails looks the same.
    """

    def __init__(self, where: str, *, has_keys: bool, now: float) -> None:
        self.connected = False
        self.ever_connected = False
        self.refusal: str | None = None
        self.suspicion: str | None = None
        self._where = where
        self._has_keys = has_keys
        self._alone_since = now
        self._told = False
        self._breaks = 0
        self._first_break = 0.0

    def on_event(self, number: int, value: int, now: float) -> bool | None:
        """Takes one event; True if the connection was made by it, False if it was lost."""
        if number == MADE:
            self.connected = self.ever_connected = True
            self._breaks, self._told, self.suspicion = 0, False, None
            return True
        if number == LOST and self.connected:
            self.connected, self._alone_since = False, now
            return False
        if number == WRONG_KEY:
            self.refusal = f"refused by {self._where}: this run does not know the key of this side"
            self.refusal += "; use the run's own keys, or join with a new token"
        elif number == WRONG_PROTOCOL:
            self.refusal = f"refused by {self._where}: {self._why_protocol(value)}"
        elif number == BROKEN_OFF and self._has_keys and value not in _SILENCE:
            self._break(now)
        return None

    def _why_protocol(self, value: int) -> str:
        if value != OTHER_MECHANISM:
            return f"it does not speak ZeroMQ as this side does (protocol error {value:#x})"
        if self._has_keys:
            return "it uses no keys, but this side does; take the keys away or connect elsewhere"
        return "missing key: it wants keys and this side has none; give --keys FOLDER, or join"

    def _break(self, now: float) -> None:
        if self._breaks == 0:
            self._first_break = now
        self._breaks += 1
        if now - self._first_break >= _BREAK_SECONDS and self._breaks >= _BREAKS:
            self.suspicion = (
                f"refused by {self._where}: it breaks off every handshake; its key is not the "
                "server.pub of this side"
            )

    def trouble(self, now: float) -> str | None:
        """What is wrong, None if it is connected or was a moment ago."""
        if self.connected or now - self._alone_since < _LONELY_SECONDS:
            return None
        return f"cannot connect to {self._where}: nobody answers there"

    def news(self, now: float) -> str | None:
        """The same, once for each time that the connection is away."""
        trouble = None if self._told else self.trouble(now)
        self._told |= trouble is not None
        return trouble
