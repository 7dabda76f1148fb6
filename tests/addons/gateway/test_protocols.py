"""The protocols of a connection, byte for byte, without a socket."""

from __future__ import annotations

import sys

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from session.addons.gateway.connection import choose_protocol
from session.addons.gateway.protocols import Encoding, Page, ProtocolSettings, StreamProtocol
from session.errors import DecodeError, OversizeError
from session.wire.frames import pack_frame

SETTINGS = ProtocolSettings(limit_bytes=100, hosts=("lab",), origins=("https://ok.example",))
GET = "GET {} HTTP/1.1\r\nHost: 127.0.0.1:7100\r\n{}\r\n"


def begin(first: bytes, settings: ProtocolSettings = SETTINGS) -> StreamProtocol:
    """The protocol that was chosen by the first bytes, and that has got them."""
    protocol = choose_protocol(first, settings)
    assert protocol is not None
    protocol.feed(first)
    return protocol


def http(path: str, headers: str = "", settings: ProtocolSettings = SETTINGS) -> str:
    return asked(GET.format(path, headers).encode(), settings)


def asked(request: bytes, settings: ProtocolSettings = SETTINGS) -> str:
    """The answer to a request; the connection is over."""
    protocol = begin(request, settings)
    assert protocol.next() is None
    assert protocol.over
    return protocol.pop_answers().decode()


def websocket(
    name: str, settings: ProtocolSettings = SETTINGS
) -> tuple[ClientProtocol, StreamProtocol]:
    """A client after its handshake, with the protocol that it speaks to."""
    client = ClientProtocol(
        parse_uri("ws://127.0.0.1:7100/v1"), subprotocols=[Subprotocol(name)], max_size=None
    )
    client.send_request(client.connect())
    (request,) = client.data_to_send()
    protocol = begin(request[:4], settings)
    feed(protocol, request[4:])
    client.receive_data(protocol.pop_answers())
    return client, protocol


def feed(protocol: StreamProtocol, data: bytes) -> list[bytes]:
    """Passes bytes to the protocol one by one; returns the payloads."""
    payloads = []
    for at in range(len(data)):
        protocol.feed(data[at : at + 1])
        while (payload := protocol.next()) is not None:
            payloads.append(payload)
    return payloads


def exchange(client: ClientProtocol, protocol: StreamProtocol) -> list[bytes]:
    """Passes the client's bytes to the protocol, and the answers back; returns the payloads."""
    payloads = feed(protocol, b"".join(client.data_to_send()))
    client.receive_data(protocol.pop_answers())
    return payloads


def test_the_first_bytes_choose_the_protocol() -> None:
    frame = pack_frame(b"{}")
    assert choose_protocol(frame[:3], SETTINGS) is None
    protocol = begin(frame)
    assert protocol.next() == b"{}"
    assert protocol.wrap(b"ab") == b"\x02\0\0\0ab"
    assert http("/healthz").startswith("HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("path", "status"), [("/", 404), ("/v2", 404), ("/healthz", 200), ("/healthz?a=1", 200)]
)
def test_other_paths_are_not_found(path: str, status: int) -> None:
    assert http(path).startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    assert asked(f"{method} /v1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()).startswith("HTTP/1.1 405 ")


def test_a_page_is_served_with_its_type() -> None:
    settings = ProtocolSettings(100, pages={"/": Page("text/html", b"<p>")})
    answer = http("/", settings=settings)
    assert "Content-Type: text/html\r\nContent-Length: 3\r\n" in answer
    assert answer.endswith("\r\n\r\n<p>")


def test_the_health_says_when_the_port_is_full() -> None:
    assert http("/healthz", settings=ProtocolSettings(100, healthy=lambda: False))[9:12] == "503"


@pytest.mark.parametrize(
    "request_",
    [
        "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n",
        "GET /\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        "GET /" + "a" * 9000,
        "GET / HTTP/1.1\r\nA: " + "a" * 9000 + "\r\n\r\n",
    ],
)
def test_a_malformed_request_is_refused(request_: str) -> None:
    assert asked(request_.encode()).startswith("HTTP/1.1 400 ")


def test_a_request_may_come_in_pieces() -> None:
    request = GET.format("/healthz", "").encode()
    protocol = begin(request[:4])
    assert feed(protocol, request[4:]) == []
    assert protocol.pop_answers().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:7100", None, True),
        ("[::1]:7100", None, True),
        ("[::1]", None, True),
        ("10.1.2.3", None, True),
        ("localhost:7100", None, True),
        ("lab:7100", None, True),
        ("evil.example", None, False),
        ("evil.example:7100", None, False),
        ("", None, False),
        ("localhost:7100", "http://localhost:7100", True),
        ("localhost:7100", "https://localhost:7100", True),
        ("localhost:7100", "https://ok.example", True),
        ("localhost:7100", "http://localhost:7101", False),
        ("localhost:7100", "https://evil.example", False),
        ("localhost:7100", "null", False),
        ("localhost:7100", "", False),
    ],
)
def test_pages_of_other_sites_are_refused(host: str, origin: str | None, allowed: bool) -> None:
    given = "" if origin is None else f"Origin: {origin}\r\n"
    answer = asked(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n{given}\r\n".encode())
    assert answer[9:12] == ("200" if allowed else "403")


@pytest.mark.parametrize("name", ["surreal.v1.msgpack", "surreal.v1.json"])
def test_messages_travel_in_a_websocket(name: str) -> None:
    client, protocol = websocket(name)
    assert client.subprotocol == name
    assert protocol.encoding == name.rpartition(".")[2]
    send = client.send_text if name.endswith("json") else client.send_binary
    send(b"one")
    send(b"tw", fin=False)
    client.send_ping(b"?")
    client.send_continuation(b"o", fin=True)
    assert exchange(client, protocol) == [b"one", b"two"]
    pong, *_ = client.events_received()[1:]
    assert isinstance(pong, Frame)
    assert pong.opcode is Opcode.PONG
    client.receive_data(protocol.wrap(b"three"))
    (answer,) = client.events_received()
    assert isinstance(answer, Frame)
    assert answer.data == b"three"
    assert answer.opcode is (Opcode.TEXT if name.endswith("json") else Opcode.BINARY)


def test_nothing_is_compressed() -> None:
    head = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        "Sec-WebSocket-Protocol: surreal.v1.json\r\n"
    )
    protocol = begin(GET.format("/v1", head).encode())
    protocol.next()
    answer = protocol.pop_answers().decode()
    assert answer.startswith("HTTP/1.1 101 ")
    assert "Extensions" not in answer


@pytest.mark.parametrize("offered", ["", "Sec-WebSocket-Protocol: surreal.v2.json\r\n"])
def test_another_subprotocol_is_refused_with_both_names(offered: str) -> None:
    head = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offered}"
    )
    answer = http("/v1", head)
    assert answer.startswith("HTTP/1.1 400 ")
    assert "surreal.v1.msgpack or surreal.v1.json" in answer


def upgraded(subprotocol: str, frames: bytes) -> StreamProtocol:
    """A protocol that has got a request and frames in one piece."""
    head = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: {subprotocol}\r\n"
    )
    return begin(GET.format("/v1", head).encode() + frames)


MESSAGE = b"\x82\x82" + bytes(4) + b"{}"
UNMASKED = b"\x82\x02{}"
CLOSING = b"\x88\x82" + bytes(4) + b"\x03\xe8"


@pytest.mark.parametrize("frames", [MESSAGE, UNMASKED, CLOSING])
def test_frames_beside_a_refused_request_are_ignored(frames: bytes) -> None:
    protocol = upgraded("other", frames)
    assert protocol.next() is None
    assert b" 400 " in protocol.pop_answers()
    assert protocol.over
    protocol.feed(frames)
    assert protocol.next() is None
    assert protocol.pop_answers() == b""


@pytest.mark.parametrize(
    ("frames", "payload", "code"),
    [(MESSAGE, b"{}", None), (UNMASKED, None, 1002), (CLOSING, None, 1000)],
)
def test_frames_beside_the_request_follow_the_handshake(
    frames: bytes, payload: bytes | None, code: int | None
) -> None:
    protocol = upgraded("surreal.v1.msgpack", frames)
    assert protocol.next() == payload
    head, _, answer = protocol.pop_answers().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert protocol.over is (code is not None)
    assert answer[:1] == (b"" if code is None else b"\x88")
    assert answer[2:4] == (b"" if code is None else code.to_bytes(2, "big"))


@pytest.mark.parametrize("name", ["surreal.v1.msgpack", "surreal.v1.json"])
def test_the_other_kind_of_message_is_refused(name: str) -> None:
    client, protocol = websocket(name)
    send = client.send_binary if name.endswith("json") else client.send_text
    send(b"one")
    with pytest.raises(DecodeError, match=r"expected (text|binary) messages"):
        exchange(client, protocol)


def test_a_large_message_closes_a_websocket() -> None:
    client, protocol = websocket("surreal.v1.json")
    client.send_text(b"a" * 60, fin=False)
    client.send_continuation(b"a" * 41, fin=True)
    assert exchange(client, protocol) == []
    assert protocol.over
    assert client.close_rcvd is not None
    assert client.close_rcvd.code == 1009


def test_a_websocket_is_closed_by_either_side() -> None:
    client, protocol = websocket("surreal.v1.json")
    client.send_close(1000)
    exchange(client, protocol)
    assert protocol.over
    assert protocol.wrap(b"too late") == b""
    client, protocol = websocket("surreal.v1.json")
    client.receive_data(protocol.close())
    assert client.close_rcvd is not None
    assert client.close_rcvd.code == 1000


def test_a_request_that_is_no_websocket_is_refused() -> None:
    assert http("/v1")[9:12] in ("400", "426")


def test_without_the_package_a_browser_gets_the_name_of_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "session.addons.gateway.websocket", None)
    answer = http("/v1")
    assert answer.startswith("HTTP/1.1 501 ")
    assert "'gateway'" in answer


def test_a_frame_above_the_limit_is_refused() -> None:
    protocol = begin(pack_frame(b"a" * 101))
    with pytest.raises(OversizeError, match="101 bytes, the limit is 100"):
        protocol.next()
    assert protocol.encoding is None
    assert Encoding("json") is Encoding.json
