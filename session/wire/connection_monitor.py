"""State of the connection of a connecting socket: made, lost, refused, or never established.

Derived from monitor events alone; without them a refused client would get no message at all.
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
# Several are needed: a single broken handshake may be a server that was just ending.
_BREAKS = 4
_BREAK_SECONDS = 1.5
# Errors of a handshake timeout: the peer exists but is too busy.
_SILENCE = (errno.EAGAIN, errno.ETIMEDOUT)
_LONELY_SECONDS = 5.0
# A plain int: an operation on zmq's flag types costs as much as the call itself.
_POLLIN = int(zmq.POLLIN)

_numbers = count()


class Monitor:
    """Receives the connection events of one socket.

    Args:
        raw: the socket.
        events: sum of ``zmq.EVENT_*`` to receive.
    """

    def __init__(self, raw: zmq.Socket[bytes], events: int) -> None:
        self._watched = raw
        address = f"inproc://monitor-{id(raw)}-{next(_numbers)}"
        self.raw: zmq.Socket[bytes] = raw.context.socket(zmq.PAIR)
        # Unlimited: a full queue would block libzmq's I/O thread and with it all other sockets.
        self.raw.setsockopt(zmq.RCVHWM, 0)
        self.raw.setsockopt(zmq.LINGER, 0)
        raw.monitor(address, events)
        self.raw.connect(address)

    def events(self) -> Iterator[tuple[int, int]]:
        """Yields number and value of each event since the last call."""
        while int(self.raw.getsockopt(zmq.EVENTS)) & _POLLIN:
            # Parsed here because zmq.utils.monitor imports asyncio.
            event = self.raw.recv_multipart()[0]
            yield (
                int.from_bytes(event[:2], sys.byteorder),
                int.from_bytes(event[2:6], sys.byteorder),
            )

    def close(self) -> None:
        """Stops monitoring; the socket itself must still be open."""
        self._watched.disable_monitor()
        self.raw.close(0)


class ConnectionMonitor:
    """State of the connection of one connecting socket.

    Args:
        where: endpoint and address, for messages.
        has_keys: True if this side uses keys.
        now: present time [s], on any clock.

    Attributes:
        connected, ever_connected: connected now, and at any time before.
        refusal: reason of a permanent refusal.
        suspicion: probable reason of a refusal; a failing peer or network looks the same.
    """

    def __init__(self, where: str, *, has_keys: bool, now: float) -> None:
        self.connected = False
        self.ever_connected = False
        self.refusal: str | None = None
        self.suspicion: str | None = None
        self._where = where
        self._has_keys = has_keys
        self._alone_since = now
        self._reported = False
        self._breaks = 0
        self._first_break = 0.0

    def on_event(self, number: int, value: int, now: float) -> bool | None:
        """Handles one event; True if it made the connection, False if it lost it, else None."""
        if number == MADE:
            self.connected = self.ever_connected = True
            self._breaks, self._reported, self.suspicion = 0, False, None
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

    def problem(self, now: float) -> str | None:
        """Describes a missing connection; None if connected now or in the last 5 s."""
        if self.connected or now - self._alone_since < _LONELY_SECONDS:
            return None
        return f"cannot connect to {self._where}: nothing answers there"

    def pop_warning(self, now: float) -> str | None:
        """Returns :meth:`problem` once per loss of the connection, else None."""
        problem = None if self._reported else self.problem(now)
        self._reported |= problem is not None
        return problem
