"""Access control: answers libzmq's ZAP requests for each key, and limits open connections.

Runs in its own thread: libzmq sends a request during each handshake, and the component itself may
be busy for seconds, in which every new peer would be lost.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

import zmq
from zmq.utils import z85

from session.errors import UsageError
from session.wire.connection_limits import Visitor, Visitors, end_connection
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
_COMPLAINTS = 1000
_NEWS = 100
_END_SECONDS = 5.0
_SWEEP_MILLISECONDS = 100
_BARRED_SECONDS = 10.0


class Watched(NamedTuple):
    """One bound socket, passed to the thread."""

    monitor: Monitor
    visitors: Visitors


class Gate:
    """Admits peers with an allowed key, counts the others, and closes connections above the limit.

    It exists from the first socket that is bound with keys until the wire is closed.

    Args:
        context: ZeroMQ context of the sockets.
        security: keys and limits.

    Raises:
        UsageError: this ZeroMQ context has a gate already.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], security: Security) -> None:
        self._security = security
        self._asked: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._asked.setsockopt(zmq.LINGER, 0)
        try:
            self._asked.bind(_ZAP)
        except zmq.ZMQError:
            # libzmq has one ZAP handler per context: the keys of both wires would be mixed.
            self._asked.close(0)
            raise UsageError("two wires with keys bind in one ZeroMQ context") from None
        self._open_endpoints: set[str] = set()
        # Rights of each known key; written by the thread, read by the component.
        self._grants: dict[str, Grant] = {}
        # Key -> end of its bar, on the monotonic clock [s].
        self._barred: dict[str, float] = {}
        self._coming: SimpleQueue[Watched] = SimpleQueue()
        self._watched: list[Watched] = []
        self._news: deque[str] = deque(maxlen=_NEWS)
        self._complained: set[tuple[str, str]] = set()
        self._refused = 0
        self._sweep_at = 0.0
        self._ending = False
        # Wakes the thread's poll: ZeroMQ sockets must not be used by two threads.
        self._wake_reader, self._wake_writer = os.pipe()
        _raise_file_limit()
        # Daemon: a process that fails before it closes its wire must still exit.
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)
        self._thread.start()

    @property
    def refused(self) -> int:
        """Number of connections refused or closed by the gate."""
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
        visitors = Visitors(endpoint, port, self._security.max_connections)
        self._coming.put(Watched(Monitor(raw, _EVENTS), visitors))
        self._wake()

    def grant(self, key: str) -> Grant:
        """Returns the rights of an admitted key; none for other keys.

        Args:
            key: public key in Z85, proved by the connection.
        """
        return self._grants.get(key, NOTHING)

    def bar(self, key: str) -> None:
        """Refuses new connections of a key for 10 s; its open connections stay.

        Args:
            key: public key in Z85; ignored if it was never admitted.
        """
        if key in self._grants:
            self._barred[key] = time.monotonic() + _BARRED_SECONDS

    def news(self) -> list[str]:
        """Returns refusals since the last call; each source and endpoint is reported once."""
        return [self._news.popleft() for _ in range(len(self._news))]

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
                while self._asked.poll(0):
                    self._answer(self._asked.recv_multipart())
                for watched in list(self._watched):
                    self._follow(watched)
                self._sweep()
        finally:
            # Close is asynchronous; the unbind frees the address at once for a next gate.
            self._asked.unbind(_ZAP)
            self._asked.close(0)
            while not self._coming.empty():
                self._watched.append(self._coming.get())
            for watched in self._watched:
                watched.monitor.raw.close(0)

    def _wait(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_reader, zmq.POLLIN)
        poller.register(self._asked, zmq.POLLIN)
        for watched in self._watched:
            poller.register(watched.monitor.raw, zmq.POLLIN)
        # The sweep is needed only for unproved connections; otherwise only events wake the thread.
        unproved = any(watched.visitors.unproved for watched in self._watched)
        ready = dict(poller.poll(_SWEEP_MILLISECONDS if unproved else None))
        if self._wake_reader in ready:
            os.read(self._wake_reader, 1024)
            while not self._coming.empty():
                self._watched.append(self._coming.get())

    def _answer(self, frames: list[bytes]) -> None:
        """Answers one ZAP request (RFC 27): version, id, domain, address, ..., key."""
        version, request_id = frames[:2]
        domain, source, mechanism = frames[2].decode(), frames[3].decode(), frames[5]
        key = z85.encode(frames[6]) if mechanism == b"CURVE" and len(frames) == 7 else b""
        refusal = self._refusal(domain, key)
        if refusal is not None:
            self._complain(domain, source, refusal)
        allowed = refusal is None
        code, text = (b"200", b"OK") if allowed else (b"400", b"key not allowed")
        # The user id is the key: libzmq attaches it to each message, where `proved_key` reads it.
        self._asked.send_multipart([version, request_id, code, text, key if allowed else b"", b""])

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
        if self._barred.get(key.decode(), 0.0) > time.monotonic():
            return f"it flooded this run less than {_BARRED_SECONDS:g} s ago"
        if not grant.enters(endpoint):
            return f"a key of the role '{grant.role}' has no business here"
        return None

    def _follow(self, watched: Watched) -> None:
        visitors = watched.visitors
        for number, value in watched.monitor.events():
            if number == ACCEPTED:
                self._accept(visitors, value)
            elif number == LOST:
                visitor = visitors.leave(value)
                if visitors.failure and visitor is not None:
                    self._complain(visitors.endpoint, visitor.source, visitors.failure)
                visitors.failure = ""
            elif number == STOPPED:
                self._watched.remove(watched)
                watched.monitor.raw.close(0)
                return
            else:
                # Reported at LOST, the connection's next event, which may come a moment later.
                visitors.failure = _why(number, value)

    def _accept(self, visitors: Visitors, descriptor: int) -> None:
        goes = visitors.come(descriptor)
        if goes is not None:
            limit = f"{visitors.limit} connections (session_config.security.max_connections)"
            self._send_away(visitors, goes, f"there are more than {limit}")

    def _sweep(self) -> None:
        """Closes connections that send too much before they have proved their key."""
        now = time.monotonic()
        if now < self._sweep_at:
            return
        self._sweep_at = now + _SWEEP_MILLISECONDS / 1000
        for _, visitors in self._watched:
            for goes in visitors.chatterers():
                self._send_away(visitors, goes, "it sent too much before its key")

    def _send_away(self, visitors: Visitors, goes: Visitor, reason: str) -> None:
        end_connection(goes.descriptor, visitors.port)
        self._complain(visitors.endpoint, goes.source, reason)

    def _complain(self, endpoint: str, source: str, reason: str) -> None:
        self._refused += 1
        # Reported once and bounded: a port scan must not fill the log.
        origin = (endpoint, source)
        if origin not in self._complained and len(self._complained) < _COMPLAINTS:
            self._complained.add(origin)
            whence = f" from {source}" if source else ""
            self._news.append(f"{endpoint}: refused a connection{whence}: {reason}")


def _why(number: int, value: int) -> str:
    if number == WRONG_PROTOCOL and value == OTHER_MECHANISM:
        return "it uses no keys"
    if number == WRONG_PROTOCOL:
        return "it does not know this run's public key, or is none of ours"
    # Wrong keys were already reported by `_answer`.
    return "" if number == WRONG_KEY else "it did not finish the handshake"


def _raise_file_limit() -> None:
    """Raises the soft limit of open files, so that refused peers cannot use them up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
