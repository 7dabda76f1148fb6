"""Token buckets and turns, on a clock of numbers; then one connection that floods real sockets."""

from __future__ import annotations

import time
from pathlib import Path

import zmq
from hypothesis import given
from hypothesis import strategies as st

from session.wire import AddressBook, Wire
from session.wire.connection_limits import Bucket, Turns
from session.wire.one_way_sockets import PublisherSocket
from session.wire.requests import RouterSocket
from session.wire.roles import GUEST, Grant
from session.wire.security import Security, allow, make_keys, write_keys
from session.wire.socket_state import poll
from tests.session.wire.rig import DEADLINE_SECONDS, Wires, free_port, until

NAME = "agent-1000"


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = Bucket(rate=10.0, burst=3.0, now=0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(0.1), bucket.take(0.1)] == [True, False]
    assert not bucket.take(0.15)
    assert [bucket.take(9.0) for _ in range(4)] == [True, True, True, False]


@given(st.lists(st.floats(0.0, 0.3), max_size=60), st.floats(1.0, 20.0), st.floats(1.0, 9.0))
def test_a_bucket_never_gives_more_than_burst_and_rate(
    gaps: list[float], rate: float, burst: float
) -> None:
    bucket, now, given_ = Bucket(rate, burst, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        given_ += bucket.take(now)
        assert given_ <= burst + rate * now + 1e-6


def test_the_others_are_served_while_one_floods() -> None:
    turns: Turns[str] = Turns(keep=2)
    served = [turns.put("flood", f"f{i}", 3.0, 0.0) for i in range(10)]
    assert served == ["f0", "f1", "f2", *[None] * 7]
    assert turns.dropped("flood") == 5
    assert turns.put("honest", "h", 3.0, 0.0) == "h"
    assert turns.next(0.0) is None
    # What waited comes in its order, at the rate of its connection.
    assert [turns.next(0.4), turns.next(0.4), turns.next(0.7)] == ["f3", None, "f4"]
    assert turns.next(9.0) is None
    assert turns.put("flood", "later", 3.0, 9.0) == "later"
    assert turns.dropped("flood") == 0


def test_those_that_wait_take_turns() -> None:
    turns: Turns[str] = Turns(keep=9)
    for name in "ab":
        for number in range(3):
            turns.put(name, f"{name}{number}", 1.0, 0.0)
    assert [turns.next(1.0), turns.next(1.0), turns.next(1.0)] == ["a1", "b1", None]


def test_what_is_known_of_connections_is_bounded() -> None:
    turns: Turns[int] = Turns(keep=2)
    for number in range(10_000):
        turns.put(str(number), number, 1.0, 0.0)
    assert len(turns) <= 4096


class Hosted:
    """A server with keys, the run's own client, and a machine that has joined."""

    def __init__(self, wires: Wires, folder: Path) -> None:
        self.wires = wires
        write_keys(folder)
        self.security = Security.load(folder)
        keys = make_keys()
        public, secret = (keys[f"client.{half}"].strip().encode() for half in ("pub", "key"))
        self.guest = Security(None, self.security.server_public, b"", public, secret)
        allow(folder, public.decode(), Grant(GUEST, (NAME,)))
        self.book = AddressBook.tcp({"ps.requests": free_port(), "replay-0.acks": free_port()})
        self.rejected: list[tuple[str, str, str]] = []
        self.wire: Wire = wires.make(
            self.book,
            "ps",
            security=self.security,
            on_reject=lambda *what: self.rejected.append(what),
        )

    def flooded(self) -> bool:
        return any("was ended" in reason for _, _, reason in self.rejected)


def test_a_guest_that_floods_is_ended_and_the_others_are_answered(
    wires: Wires, tmp_path: Path
) -> None:
    hosted = Hosted(wires, tmp_path / "keys")
    router: RouterSocket = hosted.wire.router("ps.requests")
    flood = wires.make(hosted.book, NAME, security=hosted.guest).dealer("ps.requests")
    honest = wires.make(hosted.book, "agent-0", security=hosted.security).dealer("ps.requests")
    asked = answered = served = 0
    deadline = time.monotonic() + 2 * DEADLINE_SECONDS
    while not hosted.flooded() or answered < asked or not asked:
        assert time.monotonic() < deadline, (asked, answered, hosted.rejected)
        for _ in range(200):
            flood.send("fetch")
        if asked == answered:
            asked += honest.send("fetch") is not None
        for _ in range(64):
            if (request := router.receive()) is None:
                break
            served += request.message.sender.name == NAME
            router.reply(request, "noted")
        answered += honest.receive() is not None
        poll([router, honest], 0.001)
    # Its burst, and what its rate allows for the time; most of it was dropped without a look.
    assert served < Grant(GUEST, (NAME,)).rate * (2 + 2 * DEADLINE_SECONDS)
    assert router.counters.rejected > 1000
    assert until(lambda: "flooded this run" in " ".join(hosted.wire.check()))


def test_a_guest_that_subscribes_without_end_is_ended(wires: Wires, tmp_path: Path) -> None:
    hosted = Hosted(wires, tmp_path / "keys")
    publisher: PublisherSocket = hosted.wire.publisher("replay-0.acks")
    wire = wires.make(hosted.book, NAME, security=hosted.guest)
    subscriber = wire.subscriber("replay-0.acks", high_water_mark=10_000)
    assert until(publisher.new_subscribers) == 1
    for number in range(1000):
        subscriber.raw.setsockopt(zmq.SUBSCRIBE, b"%d" % number)
    until(lambda: publisher.new_subscribers() >= 0 and hosted.flooded())
