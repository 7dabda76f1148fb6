"""Clients of ``gateway.py``: many connections in one process, which do not think."""

from __future__ import annotations

import base64
import math
import os
import select
import socket
import ssl
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from machine import cpu_of

from session.addons.gateway.protocols import Encoding
from session.wire.frames import pack_frame
from surreal_like.addons.gateway.payloads import decode, encode

WAIT = 0.1
# A first part of each measurement fills batches; it is not counted.
FILL = 0.2
FILLED_SECONDS = 10.0


@dataclass(frozen=True)
class Sample:
    """One measurement of one server.

    Args:
        steps_per_second: answers, times the environments of a session.
        cpu_seconds: processor time of the server per answer.
        p50_seconds, p99_seconds: from a request to its answer, at the client.
    """

    steps_per_second: float
    cpu_seconds: float
    p50_seconds: float
    p99_seconds: float


def sample_of(latencies: list[float], passed: float, cpu_seconds: float, streams: int) -> Sample:
    """Returns the quantiles by nearest rank, and the rates; without an answer no steps."""
    ordered, count = sorted(latencies), len(latencies)
    if not count:
        return Sample(0.0, cpu_seconds, math.inf, math.inf)
    half, most = ordered[count // 2], ordered[min(count - 1, int(0.99 * count))]
    return Sample(streams * count / passed, cpu_seconds / count, half, most)


@dataclass(frozen=True)
class Way:
    """Requests of all clients of a measurement.

    Args:
        door: ``frames``, ``json``, ``websocket`` or ``tls``.
        observation: of every request; None: CartPole's.
        streams: N, environments of a session.
        greets: False: the server is an echo, without hello and reset.
        pause: seconds between two requests of a client; 0: it does not think.
    """

    door: str = "frames"
    observation: Any = None
    streams: int = 1
    greets: bool = True
    pause: float = 0.0


_WAY = Way()


class Connection:
    """One client.

    Args:
        port: of the server.
        way: of its requests.
        waits: False: the answers to hello and reset are left to :meth:`answered`.
    """

    def __init__(self, port: int, way: Way = _WAY, *, waits: bool = True) -> None:
        door, streams = way.door, way.streams
        observation = np.zeros(4, np.float32) if way.observation is None else way.observation
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seq = 1
        self.asked_at = time.perf_counter()
        self._held = b""
        self._door = door
        self._encoding = Encoding.json if door == "json" else Encoding.msgpack
        self._head = request_head(observation, streams, self._encoding)
        if door == "tls":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        if door == "websocket":
            self._upgrade()
        if way.greets:
            self._send({"kind": "hello", "v": 1, "num_envs": streams})
            # Nothing large is taken before the welcome.
            while waits and not self._next():
                self._receive()
            self._send({"kind": "reset", "seq": 1, "observation": observation})
            while waits and not self.answered():
                pass

    def _upgrade(self) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            (
                "GET /v1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Protocol: surreal.v1.msgpack\r\nSec-WebSocket-Key: {key}\r\n\r\n"
            ).encode()
        )
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.socket.recv(1)

    def _wrapped(self, payload: bytes) -> bytes:
        if self._door != "websocket":
            return pack_frame(payload)
        size = len(payload)
        # Masked with zeros.
        head = bytes([0x82, 0x80 | size]) if size < 126 else b"\x82\xfe" + struct.pack(">H", size)
        return head + bytes(4) + payload

    def _send(self, fields: dict[str, Any]) -> None:
        self.socket.sendall(self._wrapped(encode(fields, self._encoding)))

    def _receive(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise SystemExit("the server has closed a connection")
        self._held += data

    def _next(self) -> bytes:
        """Returns the next payload, empty if it is not complete."""
        held = self._held
        if len(held) < 4:
            return b""
        if self._door != "websocket":
            start, size = 4, struct.unpack_from("<I", held)[0]
        elif held[1] < 126:
            start, size = 2, held[1]
        else:
            start, size = 4, struct.unpack_from(">H", held, 2)[0]
        payload = held[start : start + size]
        if len(payload) < size:
            return b""
        self._held = held[start + size :]
        return payload

    def step(self, now: float) -> None:
        """Sends the next request."""
        self.seq += 1
        if self._encoding is Encoding.json:
            payload = self._head + b"%d}" % self.seq
        else:
            # With a number of five bytes, all requests are equally long.
            payload = self._head + struct.pack(">I", self.seq)
        self.asked_at = now
        self.socket.sendall(self._wrapped(payload))

    def answered(self) -> bool:
        """Reads; returns True once there is an action. Messages `welcome` and `wait` are skipped.

        Raises:
            SystemExit: the server says anything else, or closes the connection.
        """
        self._receive()
        while payload := self._next():
            if b"welcome" in payload or b"wait" in payload:
                continue
            if b"action" not in payload:
                raise SystemExit(f"the gateway says {decode(payload, None)[0]}")
            return True
        return False

    def leave(self, *, says_bye: bool) -> None:
        """Closes the connection; the place at the gateway is free again."""
        if says_bye:
            # A server that is gone has been reported before.
            with suppress(OSError):
                self._send({"kind": "bye"})
        self.socket.close()


def request_head(observation: Any, streams: int, encoding: Encoding) -> bytes:
    """Returns a step without its number, which comes last."""
    fields: dict[str, Any] = {"kind": "step", "reward": 1.0, "observation": observation}
    if streams > 1:
        no = np.zeros(streams, np.bool_)
        fields |= {"reward": np.ones(streams, np.float32), "terminated": no, "truncated": no}
    body = encode(fields, encoding)
    if encoding is Encoding.json:
        return body[:-1] + b',"seq":'
    return bytes([body[0] + 1]) + body[1:] + b"\xa3seq\xce"


class Crowd:
    """Clients, each of which steps as soon as it is answered; all are served by one epoll loop.

    Args:
        port, pid: of the server.
        clients: number of connections.
        way: of their requests.
        renewals: sessions per second that end, the oldest first, each replaced by a new one.

    Attributes:
        begun: sessions that have begun so far.
    """

    def __init__(
        self, port: int, pid: int, clients: int, way: Way = _WAY, *, renewals: float = 0.0
    ) -> None:
        self._port, self._pid, self._way = port, pid, way
        self._interval = 1 / renewals if renewals else math.inf
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self.begun = 0
        for _ in range(clients):
            self._begin(waits=True)
        now = time.perf_counter()
        self._renewal = now + self._interval
        # With pauses, the first requests come one after the other.
        self._due = {
            each: now + way.pause * at / clients
            for at, each in enumerate(self._connections.values())
        }

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._connections.values():
            each.leave(says_bye=self._way.greets)
        self._poll.close()

    def _begin(self, *, waits: bool) -> None:
        each = Connection(self._port, self._way, waits=waits)
        self._connections[each.socket.fileno()] = each
        self._poll.register(each.socket, select.EPOLLIN)
        self.begun += 1

    def _renew(self) -> None:
        number, oldest = next(iter(self._connections.items()))
        del self._connections[number]
        self._due.pop(oldest, None)
        # Whether or not it has its answer.
        oldest.leave(says_bye=True)
        self._begin(waits=False)
        self._renewal += self._interval

    def drive(self, seconds: float) -> Sample:
        """Lets the clients step for some seconds."""
        pause, due, connections = self._way.pause, self._due, self._connections
        latencies: list[float] = []
        cpu, began = cpu_of(self._pid), time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            while self._renewal <= now:
                self._renew()
            while due and (each := next(iter(due))) and due[each] <= now:
                asked_at = due.pop(each)
                each.step(asked_at if pause else time.perf_counter())
            wait = next(iter(due.values())) - now if pause and due else WAIT
            for number, _ in self._poll.poll(max(0.0, min(wait, WAIT))):
                each = connections[number]
                if each.answered():
                    now = time.perf_counter()
                    latencies.append(now - each.asked_at)
                    if pause:
                        due[each] = each.asked_at + pause
                    else:
                        each.step(now)
        passed, used = time.perf_counter() - began, cpu_of(self._pid) - cpu
        return sample_of(latencies, passed, used, self._way.streams)


def measure(port: int, pid: int, clients: int, seconds: float, way: Way = _WAY) -> Sample:
    """Measures a server: its port and process, number of clients, seconds, their requests.

    Raises:
        SystemExit: no answer came in time.
    """
    with Crowd(port, pid, clients, way) as crowd:
        deadline = time.perf_counter() + FILLED_SECONDS
        # A gateway answers once replay has the rows of the clients before.
        while not crowd.drive(FILL * seconds).steps_per_second:
            if time.perf_counter() > deadline:
                raise SystemExit("no answer came in time")
        return crowd.drive(seconds)
