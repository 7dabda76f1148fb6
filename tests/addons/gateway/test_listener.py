"""The port over real sockets, within its bounds; time is moved by hand."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session.addons.gateway.connection import Connection, Event
from session.addons.gateway.listener import Listener
from session.addons.gateway.protocols import ProtocolSettings, StreamLimits
from session.errors import ConfigError, DecodeError, OversizeError
from session.wire.frames import pack_frame
from session.wire.socket_state import poll

PROTOCOLS = ProtocolSettings(limit_bytes=1 << 20)
LIMITS = StreamLimits(greeting=6, greeting_per_host=4, waiting_bytes=1 << 12)


class Clock:
    """A clock that is moved by hand."""

    seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds


class Port:
    """A listener, its clients, and all events so far."""

    def __init__(self, **changes: object) -> None:
        self.clock = Clock()
        self.refused: list[str] = []
        settings = {"protocols": PROTOCOLS, "clock": self.clock, "limits": LIMITS, **changes}
        settings["on_refused"] = lambda host, why: self.refused.append(f"{host}: {why}")
        self.listener = Listener("127.0.0.1", 0, **settings)  # type: ignore[arg-type]
        self.events: list[Event] = []
        self.clients: list[socket.socket] = []

    def connect(self, *parts: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.listener.port))
        client.settimeout(5.0)
        self.clients.append(client)
        for part in parts:
            client.sendall(part)
        return client

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 5.0
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            poll([self.listener], 0.05)
            self.events += self.listener.poll()

    def turns(self, count: int = 5) -> None:
        for _ in range(count):
            poll([self.listener], 0.001)
            self.events += self.listener.poll()

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.turns()

    def admitted(self) -> tuple[socket.socket, Connection]:
        client = self.connect(pack_frame(b"{}"))
        before = len(self.events)
        self.until(lambda: len(self.events) > before)
        connection = self.events[-1].connection
        connection.admit()
        return client, connection

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.events if event.payload is not None]

    @property
    def lost(self) -> list[Connection]:
        return [e.connection for e in self.events if e.payload is None and e.fault is None]

    @property
    def faults(self) -> list[Exception]:
        return [event.fault for event in self.events if event.fault is not None]

    def close(self) -> None:
        self.listener.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.close()


def read_all(client: socket.socket) -> bytes:
    found = b""
    while part := client.recv(1 << 16):
        found += part
    return found


def test_payloads_come_in_and_answers_go_out(port: Port) -> None:
    client = port.connect(pack_frame(b"{1}") + pack_frame(b"{2}"))
    port.until(lambda: len(port.payloads) == 2)
    assert port.payloads == [b"{1}", b"{2}"]
    port.events[0].connection.send(b"yes")
    assert client.recv(100) == pack_frame(b"yes")


def test_a_lost_client_is_an_event(port: Port) -> None:
    client, connection = port.admitted()
    client.close()
    port.until(lambda: port.lost)
    assert port.lost == [connection]
    assert connection.closed
    connection.send(b"too late")
    assert len(port.listener) == 0


def test_a_closed_connection_first_writes_its_last_words(port: Port) -> None:
    client, connection = port.admitted()
    connection.send(b"a" * (1 << 20))
    connection.close()
    client.sendall(b"b" * (1 << 16))
    port.events.clear()
    received: list[bytes] = []
    client.setblocking(False)

    def done() -> bool:
        try:
            received.append(client.recv(1 << 16))
        except BlockingIOError:
            return False
        return not received[-1]

    port.until(done)
    assert b"".join(received) == pack_frame(b"a" * (1 << 20))
    client.close()
    port.until(lambda: not len(port.listener))
    assert port.events == []


def test_a_client_that_stays_after_the_last_words_is_dropped(port: Port) -> None:
    client, connection = port.admitted()
    connection.close()
    port.turns()
    assert len(port.listener) == 1
    port.pass_time(1.1)
    assert len(port.listener) == 0
    assert client.recv(10) == b""


def test_a_client_that_says_nothing_is_closed_in_time(port: Port) -> None:
    client = port.connect()
    port.until(lambda: len(port.listener) == 1)
    port.pass_time(4.9)
    assert len(port.listener) == 1
    port.pass_time(0.4)
    assert client.recv(10) == b""
    assert port.listener.refused == 1
    assert "127.0.0.1: no valid greeting in time" in port.refused[-1]


def test_a_slow_request_does_not_extend_its_time(port: Port) -> None:
    client = port.connect()
    for byte in b"GET / HT":
        client.sendall(bytes([byte]))
        port.pass_time(0.8)
    assert client.recv(10) == b""


def test_there_are_few_connections_from_one_address_before_the_welcome(port: Port) -> None:
    clients = [port.connect() for _ in range(4)]
    port.until(lambda: len(port.listener) == 4)
    port.connect()
    port.until(lambda: port.listener.refused == 1)
    assert len(port.listener) == 4
    # The oldest one has had its time.
    assert clients[0].recv(10) == b""
    # One that is admitted makes room.
    clients[1].sendall(pack_frame(b"{}"))
    port.until(lambda: port.payloads)
    port.events[-1].connection.admit()
    port.connect()
    port.until(lambda: len(port.listener) == 5)
    assert port.listener.refused == 1


def test_there_are_few_connections_before_the_welcome() -> None:
    port = Port(limits=StreamLimits(greeting=2, greeting_per_host=100))
    try:
        for _ in range(3):
            port.connect()
        port.until(lambda: port.listener.refused == 1)
        assert len(port.listener) == 2
    finally:
        port.close()


def test_a_client_may_send_little_before_the_welcome(port: Port) -> None:
    port.connect(pack_frame(b"a" * 4000), pack_frame(b"a" * 4200))
    port.until(lambda: port.faults)
    (fault,) = port.faults
    assert isinstance(fault, OversizeError)
    assert "8192 bytes before the welcome" in str(fault)


def test_nothing_is_read_from_a_client_that_does_not_read(port: Port) -> None:
    client, connection = port.admitted()
    big = b"a" * (1 << 20)
    while not connection.out:
        connection.send(big)
    client.sendall(pack_frame(b"{}"))
    port.events.clear()
    port.turns()
    assert port.events == []
    received = 0
    while not port.payloads:
        received += len(client.recv(1 << 20))
        port.turns(1)
    assert received > 1 << 20


def test_a_message_that_stops_in_the_middle_loses_the_connection(port: Port) -> None:
    client, connection = port.admitted()
    client.sendall(struct.pack("<I", 100) + b"a")
    port.turns()
    port.pass_time(29.0)
    client.sendall(b"a")
    port.turns()
    port.pass_time(29.0)
    assert not connection.closed
    port.pass_time(1.5)
    assert port.lost == [connection]


def test_a_silent_client_between_two_messages_stays(port: Port) -> None:
    _, connection = port.admitted()
    port.pass_time(1000.0)
    assert not connection.closed


def test_a_fault_can_be_answered(port: Port) -> None:
    client = port.connect(struct.pack("<I", (1 << 20) + 1) + b"a" * 1000)
    port.until(lambda: port.faults)
    connection = port.events[-1].connection
    connection.send(b"no")
    connection.close()
    port.turns()
    assert client.recv(100) == pack_frame(b"no")


def test_an_http_answer_ends_the_connection(port: Port) -> None:
    client = port.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    port.until(lambda: port.lost)
    port.turns()
    assert read_all(client).endswith(b"ok\n")


def test_a_port_in_use_is_named(port: Port) -> None:
    number = port.listener.port
    with pytest.raises(ConfigError, match=f"port {number} of 127.0.0.1 cannot be bound"):
        Listener("127.0.0.1", number, protocols=PROTOCOLS, clock=port.clock)


# -- TLS


@pytest.fixture(scope="module")
def certificate() -> Path:
    return Path(__file__).parent / "certificate.pem"


@pytest.fixture
def tls_port(certificate: Path) -> Iterator[Port]:
    from session.addons.gateway.tls import make_server_context

    made = Port(tls=make_server_context(certificate, certificate))
    yield made
    made.close()


def test_messages_travel_in_tls(tls_port: Port, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    inner = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    client = tls_port.connect()
    client.setblocking(False)

    def exchange() -> None:
        if data := outgoing.read():
            client.sendall(data)
        tls_port.turns(2)
        try:
            incoming.write(client.recv(1 << 16))
        except BlockingIOError:
            pass

    def eventually(act: Callable[[], object]) -> object:
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            try:
                return act()
            except ssl.SSLWantReadError:
                exchange()
        raise AssertionError("no answer")

    eventually(inner.do_handshake)
    inner.write(pack_frame(b"{}"))
    exchange()
    tls_port.until(lambda: tls_port.payloads)
    tls_port.events[-1].connection.send(b"a" * 100_000)
    received = b""
    while len(received) < 100_004:
        part = eventually(lambda: inner.read(1 << 16))
        assert isinstance(part, bytes)
        received += part
    assert received == pack_frame(b"a" * 100_000)
    assert inner.version() in ("TLSv1.2", "TLSv1.3")


def test_a_client_without_tls_is_closed(tls_port: Port) -> None:
    client = tls_port.connect(pack_frame(b"{}"))
    tls_port.until(lambda: tls_port.lost)
    assert client.recv(10) == b""
    assert "came without TLS" in tls_port.refused[-1]
    assert tls_port.listener.refused == 1


def test_a_client_with_tls_is_closed_where_it_is_off(port: Port) -> None:
    client = port.connect(b"\x16", b"\x03", b"\x01\x02\0")
    port.until(lambda: port.lost)
    assert client.recv(10) == b""
    assert "wants TLS" in port.refused[-1]


def test_broken_tls_is_a_fault(tls_port: Port) -> None:
    tls_port.connect(b"\x16\x03\x01\x00\x05hello")
    tls_port.until(lambda: tls_port.faults)
    assert isinstance(tls_port.faults[0], DecodeError)


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    from session.addons.gateway.tls import make_server_context

    (tmp_path / "a.pem").write_text("no")
    with pytest.raises(ConfigError, match=r"a\.pem"):
        make_server_context(tmp_path / "a.pem", tmp_path / "a.pem")


def test_a_defect_ends_one_connection(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Connection, data: bytes, events: list[Event]) -> bool:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(Connection, "receive", broken)
    port.connect(b"anything")
    port.until(lambda: port.refused)
    assert port.refused == ["127.0.0.1: a defect of this program: ZeroDivisionError('here')"]
    assert len(port.listener) == 0


def test_a_client_that_has_said_hello_is_not_displaced_by_new_ones(port: Port) -> None:
    hello = pack_frame(b"{}")
    clients = [port.connect(hello) for _ in range(4)]
    late = [port.connect() for _ in range(40)]
    port.until(lambda: len(port.payloads) == 4)
    for event in port.events:
        if event.payload is not None:
            event.connection.admit()
    port.until(lambda: port.listener.refused == 36)
    assert len(port.listener) == 8
    for client in clients:
        client.sendall(hello)
    port.until(lambda: len(port.payloads) == 8)
    assert late[0].recv(10) == b""


def test_a_flood_of_one_client_lets_the_messages_of_others_through(port: Port) -> None:
    flooding, first = port.admitted()
    modest, second = port.admitted()
    port.events.clear()
    flooding.sendall(pack_frame(b"{}") * 1000)
    modest.sendall(pack_frame(b"{}"))
    rounds: list[list[Connection]] = []
    while sum(len(each) for each in rounds) < 1001:
        rounds.append([event.connection for event in port.listener.poll()])
    assert max(each.count(first) for each in rounds) == 4
    # Not after all of the flood, which has come in one piece.
    reached = next(number for number, each in enumerate(rounds) if second in each)
    assert reached < 200
    flooding.sendall(pack_frame(b"{}"))
    port.until(lambda: port.payloads)


def test_a_client_that_floods_and_leaves_is_noticed_after_its_last_message(port: Port) -> None:
    client, connection = port.admitted()
    port.events.clear()
    client.sendall(pack_frame(b"{}") * 100)
    client.close()
    port.until(lambda: port.lost)
    assert len(port.payloads) == 100
    assert port.events[-1] == (connection, None, None)
