"""Access control: answers libzmq's ZAP requests for each key, and limits open connections.

Runs in its own thread: libzmq sends a request during each handshake, and the component itself may
be busy for seconds, in which every new peer would be lost.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import NamedTuple

import zmq
from zmq.utils import z85

from session.errors import UsageError
from session.file_limit import raise_file_limit
from session.line_limit import LineLimit
from session.wire.connection_limits import OpenConnection, OpenConnections, end_connection
from session.wire.connection_monitor import (
    ACCEPTED,
    BROKEN_OFF,
    LOST,
    OTHER_MECHANISM,
    STOPPED,
    WRONG_KEY,
    WRONG_PROTOCOL,
    Monitor,
)
from session.wire.roles import NOTHING, Grant
from session.wire.security import Security

_ZAP = "inproc://zeromq.zap.01"
_EVENTS = ACCEPTED | LOST | WRONG_KEY | WRONG_PROTOCOL | BROKEN_OFF | STOPPED
_REFUSALS = 100
_END_SECONDS = 5.0
_SWEEP_MILLISECONDS = 100
_BLOCKED_SECONDS = 10.0


class Watched(NamedTuple):
    """One bound socket, passed to the thread."""

    monitor: Monitor
    connections: OpenConnections


class ZapHandler:
    """Admits peers with an allowed key, counts the others, and closes connections above the limit.

    It exists from the first socket that is bound with keys until the wire is closed.

    Args:
        context: ZeroMQ context of the sockets.
        security: keys and limits.

    Raises:
        UsageError: this ZeroMQ context has a ZAP handler already.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], security: Security) -> None:
        self._security = security
        self._requests: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._requests.setsockopt(zmq.LINGER, 0)
        try:
            self._requests.bind(_ZAP)
        except zmq.ZMQError:
            # libzmq has one ZAP handler per context: the keys of both wires would be mixed.
            self._requests.close(0)
            raise UsageError("two wires with keys bind in one ZeroMQ context") from None
        self._open_endpoints: set[str] = set()
        # Rights of each known key; written by the thread, read by the component.
        self._grants: dict[str, Grant] = {}
        # Key -> end of its bar, on the monotonic clock [s].
        self._blocked: dict[str, float] = {}
        self._new: SimpleQueue[Watched] = SimpleQueue()
        self._watched: list[Watched] = []
        self._refusals: deque[str] = deque(maxlen=_REFUSALS)
        self._reports = LineLimit(time.monotonic, seconds=math.inf)
        self._refused = 0
        self._sweep_at = 0.0
        self._ending = False
        # Wakes the thread's poll: ZeroMQ sockets must not be used by two threads.
        self._wake_reader, self._wake_writer = os.pipe()
        # Refused peers must not use up the open files.
        raise_file_limit()
        # Daemon: a process that fails before it closes its wire must still exit.
        self._thread = threading.Thread(target=self._run, name="zap-handler", daemon=True)
        self._thread.start()

    @property
    def refused(self) -> int:
        """Number of connections refused or closed by it."""
        return self._refused

    def watch(
        self, endpoint: str, raw: zmq.Socket[bytes], address: str, *, any_key: bool = False
    ) -> None:
        """Guards a socket that is about to be bound.

        Args:
            endpoint: name of the endpoint, also the socket's ZAP domain.
            raw: the socket.
            address: TCP address to which it will be bound.
            any_key: True admits every key.
        """
        if any_key:
            self._open_endpoints.add(endpoint)
        port = int(address.rpartition(":")[2])
        connections = OpenConnections(endpoint, port, self._security.max_connections)
        self._new.put(Watched(Monitor(raw, _EVENTS), connections))
        self._wake()

    def grant(self, key: str) -> Grant:
        """Returns the rights of an admitted key; none for other keys.

        Args:
            key: public key in Z85, proved by the connection.
        """
        return self._grants.get(key, NOTHING)

    def block(self, key: str) -> None:
        """Refuses new connections of a key for 10 s; its open connections stay.

        Args:
            key: public key in Z85; ignored if it was never admitted.
        """
        if key in self._grants:
            self._blocked[key] = time.monotonic() + _BLOCKED_SECONDS

    def pop_refusals(self) -> list[str]:
        """Returns refusals since the last call; each reason once per source and endpoint."""
        return [self._refusals.popleft() for _ in range(len(self._refusals))]

    def close(self) -> None:
        """Ends the thread; the sockets must be closed before, or they would refuse every peer."""
        self._ending = True
        self._wake()
        self._thread.join(_END_SECONDS)
        os.close(self._wake_writer)
        os.close(self._wake_reader)

    def _wake(self) -> None:
        os.write(self._wake_writer, b"x")

    def _run(self) -> None:
        try:
            while not self._ending:
                self._wait()
                while self._requests.poll(0):
                    self._answer(self._requests.recv_multipart())
                for watched in list(self._watched):
                    self._read_events(watched)
                self._sweep()
        finally:
            # Close is asynchronous; the unbind frees the address at once for the next handler.
            self._requests.unbind(_ZAP)
            self._requests.close(0)
            while not self._new.empty():
                self._watched.append(self._new.get())
            for watched in self._watched:
                watched.monitor.raw.close(0)

    def _wait(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_reader, zmq.POLLIN)
        poller.register(self._requests, zmq.POLLIN)
        for watched in self._watched:
            poller.register(watched.monitor.raw, zmq.POLLIN)
        # The sweep is needed only for unproved connections; otherwise only events wake the thread.
        unproved = any(watched.connections.unproved for watched in self._watched)
        ready = dict(poller.poll(_SWEEP_MILLISECONDS if unproved else None))
        if self._wake_reader in ready:
            os.read(self._wake_reader, 1024)
            while not self._new.empty():
                self._watched.append(self._new.get())

    def _answer(self, frames: list[bytes]) -> None:
        """Answers one ZAP request (RFC 27): version, id, domain, address, ..., key."""
        version, request_id = frames[:2]
        domain, source, mechanism = frames[2].decode(), frames[3].decode(), frames[5]
        key = z85.encode(frames[6]) if mechanism == b"CURVE" and len(frames) == 7 else b""
        refusal = self._refusal(domain, key)
        if refusal is not None:
            self._report(domain, source, refusal)
        allowed = refusal is None
        code, text = (b"200", b"OK") if allowed else (b"400", b"key not allowed")
        # The user id is the key: libzmq attaches it to each message, where `proved_key` reads it.
        self._requests.send_multipart(
            [version, request_id, code, text, key if allowed else b"", b""]
        )

    def _refusal(self, endpoint: str, key: bytes) -> str | None:
        """Returns the reason to refuse a key at an endpoint, None if it is admitted."""
        grant = self._security.grant(key) if key else None
        if grant is not None:
            # Before the reply: the first message may arrive right after it and needs its rights.
            self._grants[key.decode()] = grant
        # A machine that wants to join has no key of the run yet; it proves its token there.
        if key and endpoint in self._open_endpoints:
            return None
        if grant is None:
            return "its key is not allowed"
        if self._blocked.get(key.decode(), 0.0) > time.monotonic():
            return f"it flooded this run less than {_BLOCKED_SECONDS:g} s ago"
        if not grant.enters(endpoint):
            return f"a key of the role '{grant.role}' has no business here"
        return None

    def _read_events(self, watched: Watched) -> None:
        connections = watched.connections
        for number, value in watched.monitor.events():
            if number == ACCEPTED:
                self._accept(connections, value)
            elif number == LOST:
                connection = connections.remove(value)
                if connections.failure and connection is not None:
                    self._report(connections.endpoint, connection.source, connections.failure)
                connections.failure = ""
            elif number == STOPPED:
                self._watched.remove(watched)
                watched.monitor.raw.close(0)
                return
            else:
                # Reported at LOST, the connection's next event, which may come a moment later.
                connections.failure = _why(number, value)

    def _accept(self, connections: OpenConnections, descriptor: int) -> None:
        excess = connections.add(descriptor)
        if excess is not None:
            limit = f"{connections.limit} connections (session_config.security.max_connections)"
            self._close_connection(connections, excess, f"there are more than {limit}")

    def _sweep(self) -> None:
        """Closes connections that send too much before they have proved their key."""
        now = time.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_MILLISECONDS / 1000
        for _, connections in self._watched:
            for connection in connections.remove_oversized():
                self._close_connection(connections, connection, "it sent too much before its key")

    def _close_connection(
        self, connections: OpenConnections, excess: OpenConnection, reason: str
    ) -> None:
        end_connection(excess.descriptor, connections.port)
        self._report(connections.endpoint, excess.source, reason)

    def _report(self, endpoint: str, source: str, reason: str) -> None:
        self._refused += 1
        # Reported once and bounded: a port scan must not fill the log.
        if self._reports.admit(f"{endpoint} {source}", reason) is not None:
            source_text = f" from {source}" if source else ""
            self._refusals.append(f"{endpoint}: refused a connection{source_text}: {reason}")


def _why(number: int, value: int) -> str:
    if number == WRONG_PROTOCOL and value == OTHER_MECHANISM:
        return "it uses no keys"
    if number == WRONG_PROTOCOL:
        return "it does not know this run's public key, or is none of ours"
    # Wrong keys were already reported by `_answer`.
    return "" if number == WRONG_KEY else "it did not finish the handshake"
