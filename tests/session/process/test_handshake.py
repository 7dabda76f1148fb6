"""The hello: said until it is answered, again after each reconnection, never waiting."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from session.errors import RefusedError, UsageError
from session.process.clock import CountedClock
from session.process.handshake import ANSWERS, Accepted, Handshake
from session.wire import PROTOCOL_VERSION, AddressBook, Identity, Wire
from session.wire.requests import Request, RouterSocket
from tests.session.wire.rig import free_port, until

WELCOME = {"starts": 2, "incarnation": 1700, "version": [1600, 12], "iteration": 400}
HELLO = {"name": "agent-0", "incarnation": 1650, "fingerprint": "ab" * 32, "spec_hash": "cd" * 8}


class Server:
    """A parameter server's end that a test answers by hand."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], book: AddressBook) -> None:
        self.wire = Wire(context, book, Identity("ps", 1))
        self.router: RouterSocket = self.wire.router("ps.requests")

    def close(self) -> None:
        self.wire.close(0)


class Talk:
    """One component that says hello, and the server that gets it."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.book = AddressBook.tcp({"ps.requests": free_port()})
        self.clock = CountedClock()
        self.wire = Wire(self.context, self.book, Identity("agent-0", 1650))
        self.hello = Handshake(self.wire.dealer("ps.requests", ANSWERS), self.clock, **HELLO)  # type: ignore[arg-type]
        self.server: Server | None = None

    def serve(self) -> Server:
        self.server = Server(self.context, self.book)
        return self.server

    def serve_again(self) -> Server | None:
        """As before, once the port of the server that was closed is free."""
        try:
            return self.serve()
        except UsageError:
            return None

    def next_hello(self, server: Server) -> Request:
        """The next hello that arrives."""

        def look() -> Request | None:
            self.hello.tick()
            return server.router.receive()

        return until(look)

    def pass_seconds(self, seconds: float) -> None:
        for _ in range(round(seconds * 1000)):
            self.clock.advance()

    def close(self) -> None:
        self.wire.close(0)
        if self.server is not None:
            self.server.close()
        self.context.destroy(0)


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.close()


def test_a_fresh_component_is_welcomed(talk: Talk) -> None:
    server = talk.serve()
    request = talk.next_hello(server)
    assert request.message.kind == "hello"
    fields = {key: value for key, value in request.message.fields.items() if key != "id"}
    assert fields == {**HELLO, "protocol": PROTOCOL_VERSION, "fresh": True}
    assert talk.hello.welcome is None
    server.router.reply(request, "welcome", WELCOME)
    until(talk.hello.tick)
    assert talk.hello.welcome == Accepted(2, 1700, (1600, 12), 400)


def test_it_does_not_wait_for_the_server(talk: Talk) -> None:
    start = time.monotonic()
    for _ in range(100):
        assert not talk.hello.tick()
    assert time.monotonic() - start < 0.5


def test_it_is_said_once_a_second_until_it_is_answered(talk: Talk) -> None:
    server = talk.serve()
    first = talk.next_hello(server)
    for _ in range(20):
        talk.hello.tick()
    assert server.router.receive() is None
    talk.pass_seconds(1.0)
    assert talk.next_hello(server).message.fields["id"] != first.message.fields["id"]
    # A late reply counts: a server slower than the repetition would else never be understood.
    server.router.reply(first, "welcome", WELCOME)
    until(talk.hello.tick)
    assert talk.hello.welcome is not None
    talk.pass_seconds(100.0)
    assert not talk.hello.tick()


def test_it_is_said_again_after_a_reconnection(talk: Talk) -> None:
    server = talk.serve()
    request = talk.next_hello(server)
    server.router.reply(request, "welcome", WELCOME)
    until(talk.hello.tick)
    server.close()
    until(lambda: not talk.hello.socket.writable())
    again = talk.next_hello(until(talk.serve_again))
    fields = again.message.fields
    assert (fields["fresh"], fields["incarnation"]) == (False, 1700)


def test_a_refusal_ends_the_component(talk: Talk) -> None:
    server = talk.serve()
    server.router.refuse(talk.next_hello(server), "protocol 1, this is protocol 2")
    with pytest.raises(RefusedError, match="protocol 1, this is protocol 2"):
        until(talk.hello.tick)


@pytest.mark.parametrize(
    "fields",
    [{}, {**WELCOME, "starts": None}, {**WELCOME, "version": 3}, {**WELCOME, "version": [1]}],
)
def test_an_answer_of_another_process_is_no_welcome(talk: Talk, fields: dict[str, Any]) -> None:
    server = talk.serve()
    server.router.reply(talk.next_hello(server), "welcome", fields)

    def refused() -> bool:
        talk.hello.tick()
        return talk.hello.socket.counters.rejected == 1

    until(refused)
    assert talk.hello.welcome is None
    talk.pass_seconds(1.0)
    server.router.reply(talk.next_hello(server), "welcome", WELCOME)
    until(talk.hello.tick)
    assert talk.hello.welcome is not None
