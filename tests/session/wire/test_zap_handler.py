"""Who comes in through CURVE, what the others see, and that a flood of them does no harm."""

from __future__ import annotations

import os
import re
import socket as tcp
import threading
import time
from pathlib import Path

import psutil
import pytest
import zmq

from session.errors import AdmissionError, UsageError
from session.wire import AddressBook, Wire, connection_limits
from session.wire import codec as codec_module
from session.wire.connection_limits import ByteCounts, OpenConnection, OpenConnections
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.roles import GUEST, Grant
from session.wire.security import Security, allow, write_keys
from session.wire.socket_state import poll
from tests.session.wire.rig import DEADLINE_SECONDS, Wires, free_port, until

# What the user waits at most to hear why nothing happens.
REFUSED_SECONDS = 5.0


class Guarded:
    """A router with keys, and clients that may have others.

    Args:
        wires: makes the sockets.
        folder: for keys.
    """

    def __init__(self, wires: Wires, folder: Path, **limits: float) -> None:
        self.wires = wires
        self.folder = folder / "run"
        write_keys(self.folder)
        self.port = free_port()
        self.book = AddressBook.tcp({"ps.requests": self.port})
        self.security = Security.load(self.folder)
        self.server = wires.make(
            self.book,
            "ps",
            security=Security(**{**_fields(self.security), **limits}),  # type: ignore[arg-type]
        )
        self.router: RouterSocket = self.server.router("ps.requests")

    def client(self, security: Security | None) -> DealerSocket:
        return self.wires.make(self.book, security=security).dealer("ps.requests")

    def stranger(self, *, server: bytes = b"") -> Security:
        """Keys of somebody else; with the right public key of the server, or another."""
        folder = self.folder.with_name(f"other-{len(self.wires.made)}")
        write_keys(folder)
        (folder / "server.pub").write_bytes(server or self.security.server_public)
        return Security.load(folder)

    def answers(self, client: DealerSocket) -> str:
        """The key that the server saw of a client that was answered."""
        until(lambda: client.send("info"))
        request = until(self.router.receive)
        self.router.reply(request, "noted")
        assert until(client.receive).kind == "noted"
        return request.key

    def refusal(self, client: DealerSocket) -> str:
        """What a client hears that is not let in."""
        began = time.monotonic()
        with pytest.raises(AdmissionError) as refused:
            until(client.check)
        assert time.monotonic() - began < REFUSED_SECONDS
        return str(refused.value)


def _fields(security: Security) -> dict[str, object]:
    return {name: getattr(security, name) for name in Security.__slots__}


@pytest.fixture
def guarded(wires: Wires, tmp_path: Path) -> Guarded:
    return Guarded(wires, tmp_path)


def handlers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zap-handler"]


def test_a_peer_with_the_keys_is_admitted_and_proves_its_own(guarded: Guarded) -> None:
    assert guarded.answers(guarded.client(guarded.security)).encode() == (
        guarded.security.client_public
    )
    assert guarded.server.check() == []


def test_the_handler_goes_with_its_wire(guarded: Guarded) -> None:
    assert len(handlers()) == 1
    guarded.server.close(0)
    assert handlers() == []


def test_without_keys_or_beyond_tcp_there_is_no_handler(wires: Wires, tmp_path: Path) -> None:
    write_keys(tmp_path / "keys")
    security = Security.load(tmp_path / "keys")
    wires.make(AddressBook.ipc(["ps.requests"], tmp_path), security=security).router("ps.requests")
    wires.make(AddressBook.inproc(["a.b"]), security=security).router("a.b")
    plain = AddressBook.tcp({"c.d": free_port()})
    wires.make(plain).router("c.d")
    assert handlers() == []


def test_a_stranger_learns_that_its_key_is_unknown(guarded: Guarded) -> None:
    assert "this run does not know the key of this side" in guarded.refusal(
        guarded.client(guarded.stranger())
    )
    (line,) = until(guarded.server.check)
    assert line == "ps.requests: refused a connection from 127.0.0.1: its key is not allowed"


def test_each_reason_of_one_source_is_reported_once(guarded: Guarded) -> None:
    lines: list[str] = []
    handler = guarded.server._zap
    assert handler is not None

    def is_open() -> bool:
        return any(len(watched.connections) for watched in handler._watched)

    def ends_early() -> bool:
        with tcp.create_connection(("127.0.0.1", guarded.port)):
            until(is_open)  # it was asked from where it comes
        until(lambda: not is_open())
        lines.extend(guarded.server.check())
        return guarded.server.refused_connections >= 3

    def is_refused_for_its_key() -> bool:
        lines.extend(guarded.server.check())
        return any("its key is not allowed" in line for line in lines)

    until(ends_early)
    # Another peer at the same address is refused for another reason.
    guarded.refusal(guarded.client(guarded.stranger()))
    until(is_refused_for_its_key)
    assert sorted(lines) == [
        "ps.requests: refused a connection from 127.0.0.1: it did not finish the handshake",
        "ps.requests: refused a connection from 127.0.0.1: its key is not allowed",
    ]


def test_a_plain_client_learns_that_keys_are_missing(guarded: Guarded) -> None:
    assert "missing key: it wants keys and this side has none" in guarded.refusal(
        guarded.client(None)
    )
    # From where, if the connection lived long enough to be asked.
    line = until(guarded.server.check)[0]
    assert re.fullmatch(
        r"ps\.requests: refused a connection( from 127\.0\.0\.1)?: it uses no keys", line
    )


def test_a_client_of_another_run_learns_that_the_handshake_breaks(guarded: Guarded) -> None:
    other = guarded.stranger()
    client = guarded.client(guarded.stranger(server=other.client_public))
    assert "breaks off every handshake" in guarded.refusal(client)
    assert "does not know this run's public key" in until(guarded.server.check)[0]
    assert guarded.server.refused_connections > 0


def test_a_client_that_is_admitted_elsewhere_waits(guarded: Guarded, wires: Wires) -> None:
    """A network that fails breaks off handshakes, too; with wrong keys nobody lets it in."""
    with tcp.create_server(("127.0.0.1", 0)) as failing:
        port = failing.getsockname()[1]
        book = AddressBook.tcp({"ps.requests": guarded.port, "replay-0.batches": port})
        wire = wires.make(book, security=guarded.security)
        broken, good = wire.dealer("replay-0.batches"), wire.dealer("ps.requests")
        assert guarded.answers(good)
        link = broken.link
        assert link is not None

        def break_off() -> bool:
            failing.settimeout(1.0)
            failing.accept()[0].close()
            wire.check()
            return link.suspicion is not None

        until(break_off)
        assert wire.check() == []
        good.close()
        with pytest.raises(AdmissionError, match="breaks off every handshake"):
            wire.check()


def test_a_client_with_keys_learns_that_a_server_has_none(guarded: Guarded, wires: Wires) -> None:
    book = AddressBook.tcp({"ps.requests": free_port()})
    wires.make(book, "ps").router("ps.requests")
    client = wires.make(book, security=guarded.security).dealer("ps.requests")
    assert "it uses no keys, but this side does" in guarded.refusal(client)


def test_a_request_of_a_stranger_ends_with_the_refusal(guarded: Guarded) -> None:
    client = guarded.client(guarded.stranger())
    with pytest.raises(AdmissionError, match=r"refused by tcp://127\.0\.0\.1:\d+ \(ps\.requests\)"):
        client.request("info", timeout_seconds=10.0)


def test_sources_are_reported_once(guarded: Guarded) -> None:
    for _ in range(3):
        guarded.refusal(guarded.client(guarded.stranger()))
    until(lambda: guarded.server.refused_connections >= 3)
    assert len(guarded.server.check()) == 1


def test_a_key_that_is_allowed_later_comes_in(guarded: Guarded) -> None:
    stranger = guarded.stranger()
    guarded.refusal(guarded.client(stranger))
    allow(guarded.folder, stranger.client_public.decode(), Grant(GUEST, ("agent-0",)))
    assert guarded.answers(guarded.client(stranger)).encode() == stranger.client_public


def test_keys_are_judged_while_the_component_is_busy(guarded: Guarded) -> None:
    client, began = guarded.client(guarded.security), time.monotonic()
    # Nobody looks at the router meanwhile.
    until(lambda: client.link is not None and (client.check() or client.link.connected))
    assert time.monotonic() - began < 1.0


def test_an_endpoint_for_any_key_admits_every_key(wires: Wires, tmp_path: Path) -> None:
    guarded = Guarded(wires, tmp_path)
    book = AddressBook.tcp({"ps.requests": guarded.port, "ps.join": free_port()})
    guarded.server.addresses = book
    door = guarded.server.router("ps.join", any_key=True)
    stranger = guarded.stranger()
    client = wires.make(book, security=stranger).dealer("ps.join")
    until(lambda: client.send("join"))
    assert until(door.receive).key.encode() == stranger.client_public
    # There only: elsewhere it is a stranger as before.
    guarded.refusal(guarded.client(stranger))


def test_a_door_takes_only_small_messages(wires: Wires, tmp_path: Path) -> None:
    guarded = Guarded(wires, tmp_path)
    book = AddressBook.tcp({"ps.requests": guarded.port, "ps.join": free_port()})
    guarded.server.addresses = book
    door = guarded.server.router("ps.join", any_key=True)
    client = wires.make(book, security=guarded.security).dealer("ps.join")
    until(lambda: client.send("join", {"secret": b"x" * 100_000}))
    until(lambda: False in client.connection_events())
    assert door.receive() is None


def test_a_context_has_one_handler(guarded: Guarded, wires: Wires) -> None:
    book = AddressBook.tcp({"ps.requests": free_port()})
    with pytest.raises(UsageError, match="two wires with keys bind in one ZeroMQ context"):
        wires.make(book, security=guarded.security).router("ps.requests")


class NoHandler:
    """What answers libzmq if our handler does not."""

    def watch(self, *what: object, **how: object) -> None:
        """Looks away."""


def test_without_a_handler_no_peer_is_admitted(
    wires: Wires, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libzmq lets in everybody if nobody answers for it: then it must let in nobody."""
    monkeypatch.setattr(Wire, "zap", NoHandler())
    guarded = Guarded(wires, tmp_path)
    client = guarded.client(guarded.security)
    link = client.link
    assert link is not None
    until(lambda: client.check() is None and link._breaks > 1)
    assert not link.ever_connected
    assert guarded.router.receive() is None


# -- another version of the protocol ---------------------------------------------------------------


def test_both_sides_report_another_protocol(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected: list[tuple[str, str, str]] = []
    guarded.server._on_reject = lambda *reason: rejected.append(reason)
    client = guarded.client(guarded.security)
    with monkeypatch.context() as newer:
        newer.setattr(codec_module, "PROTOCOL_VERSION", 5)
        until(lambda: client.send("hello", {"protocol": 2}))
    until(lambda: guarded.router.receive() or rejected)
    assert rejected == [
        ("ps.requests", "agent-0", "'agent-0' speaks protocol 5, this is protocol 4")
    ]
    with monkeypatch.context() as newer:
        newer.setattr(codec_module, "PROTOCOL_VERSION", 5)
        with pytest.raises(
            AdmissionError, match="'ps' speaks protocol 4, this is protocol 5; inst"
        ):
            until(client.receive)


# -- limits ---------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def silent_peers(port: int, number: int) -> list[tcp.socket]:
    return [tcp.create_connection(("127.0.0.1", port)) for _ in range(number)]


def test_a_peer_that_says_nothing_is_sent_away(wires: Wires, tmp_path: Path) -> None:
    guarded = Guarded(wires, tmp_path, handshake_seconds=0.3)
    (peer,) = silent_peers(guarded.port, 1)
    with peer:
        peer.settimeout(DEADLINE_SECONDS)
        while peer.recv(100):  # libzmq's greeting first, then the end
            pass
    assert "did not finish the handshake" in until(guarded.server.check)[0]


def test_connections_over_the_limit_go_and_those_with_keys_stay(
    wires: Wires, tmp_path: Path
) -> None:
    limit = 20
    guarded = Guarded(wires, tmp_path, max_connections=limit, handshake_seconds=60.0)
    old = guarded.client(guarded.security)
    guarded.answers(old)
    before = open_files()
    peers = silent_peers(guarded.port, 200)
    try:
        # The test holds 200 ends of its own; libzmq has no more than the limit of the others.
        until(lambda: open_files() - before <= 200 + limit)
        assert guarded.answers(old)
        assert guarded.answers(guarded.client(guarded.security))
        until(lambda: guarded.server.refused_connections >= 200 - limit)
        assert "more than 20 connections" in guarded.server.check()[0]
        assert False not in old.connection_events()
    finally:
        for peer in peers:
            peer.close()


def test_garbage_does_no_harm(wires: Wires, tmp_path: Path) -> None:
    guarded = Guarded(wires, tmp_path, max_connections=50)
    client = guarded.client(guarded.security)
    guarded.answers(client)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE".ljust(54, b"\0")
    for index in range(150):
        with tcp.create_connection(("127.0.0.1", guarded.port)) as peer:
            peer.sendall((b"GET / HTTP/1.0\r\n\r\n", os.urandom(500), greeting * 3)[index % 3])
    assert guarded.answers(client)
    assert guarded.answers(guarded.client(guarded.security))
    assert guarded.server.counters()["ps.requests"].rejected == 0


class Traffic:
    """What connections have counts, as a test says it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, ByteCounts] = {}
        monkeypatch.setattr(connection_limits, "byte_counts", self.byte_counts)

    def byte_counts(self, descriptor: int, port: int) -> ByteCounts:
        return self.of.get(descriptor, ByteCounts(64, 0))


def descriptor_of(connection: OpenConnection | None) -> int | None:
    return None if connection is None else connection.descriptor


def test_the_limit_spares_peers_that_have_proved_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic, connections = Traffic(monkeypatch), OpenConnections("ps.requests", 1, 3)
    assert [connections.add(descriptor) for descriptor in (1, 2, 3)] == [None] * 3
    traffic.of[1] = ByteCounts(300, 900)
    assert [descriptor_of(connections.add(descriptor)) for descriptor in (4, 5)] == [2, 3]
    assert connections.remove(2) is None
    assert len(connections) == 3
    traffic.of |= dict.fromkeys((4, 5), ByteCounts(300, 900))
    assert descriptor_of(connections.add(6)) == 6
    assert descriptor_of(connections.remove(1)) == 1
    assert connections.add(7) is None
    assert connections.unproved == 1


def test_a_peer_that_sends_much_before_its_key_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic, connections = Traffic(monkeypatch), OpenConnections("ps.requests", 1, 9)
    for descriptor in (1, 2, 3):
        connections.add(descriptor)
    traffic.of = {1: ByteCounts(234, 4096), 2: ByteCounts(234, 4097), 3: ByteCounts(300, 1 << 20)}
    assert list(map(descriptor_of, connections.remove_oversized())) == [2]
    assert connections.remove_oversized() == []
    assert (len(connections), connections.unproved) == (2, 1)


def send_slowly(peer: tcp.socket, size_bytes: int) -> None:
    """As a peer whose network carries 80 MB a second."""
    for _ in range(0, size_bytes, 800_000):
        poll([], 0.01)
        peer.sendall(bytes(800_000))


def test_a_large_message_before_the_key_fills_no_memory(guarded: Guarded) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(52, b"\0")
    claimed = b"\x06" + (400 << 20).to_bytes(8, "big")
    before = psutil.Process().memory_info().rss
    with tcp.create_connection(("127.0.0.1", guarded.port)) as peer:
        peer.sendall(greeting + claimed)
        with pytest.raises(OSError, match=r"Broken pipe|Connection reset"):
            send_slowly(peer, 400 << 20)
    assert psutil.Process().memory_info().rss - before < 100 << 20
    assert "it sent too much before its key" in until(guarded.server.check)[0]
    assert guarded.answers(guarded.client(guarded.security))


def test_large_messages_of_those_with_keys_pass(guarded: Guarded) -> None:
    client = guarded.client(guarded.security)
    for _ in range(3):
        until(lambda: client.send("info", {"text": "x" * (1 << 20)}))
        assert len(until(guarded.router.receive).message.fields["text"]) == 1 << 20
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert guarded.answers(client)
    assert guarded.server.refused_connections == 0


def test_a_wire_closes_with_connections_open(guarded: Guarded) -> None:
    peers = silent_peers(guarded.port, 5)
    guarded.answers(guarded.client(guarded.security))
    guarded.server.close(0)
    assert handlers() == []
    for peer in peers:
        peer.close()


def test_the_handler_of_a_wire_whose_bind_fails_is_closed(wires: Wires, tmp_path: Path) -> None:
    write_keys(tmp_path / "keys")
    port = free_port()
    with tcp.create_server(("127.0.0.1", port)):
        wire: Wire = wires.make(
            AddressBook.tcp({"ps.requests": port}), security=Security.load(tmp_path / "keys")
        )
        with pytest.raises(UsageError, match="cannot bind"):
            wire.router("ps.requests")
    wire.close(0)
    assert handlers() == []
    assert zmq.has("curve")
