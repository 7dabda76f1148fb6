"""Sockets: what arrives, what is refused and counted, what happens when the other side is away."""

import socket as tcp
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from session.errors import OversizeError, UsageError
from session.wire import AddressBook, Identity, Message, Wire
from session.wire import socket_state as shared_module
from session.wire.one_way_sockets import PullSocket
from session.wire.requests import Request
from session.wire.socket_state import poll
from tests.session.wire.rig import ENDPOINTS, FINGERPRINT, Wires, until


def test_pushed_messages_arrive_in_order_with_their_sender(book: AddressBook, wires: Wires) -> None:
    pull = wires.make(book, "replay-0").pull("replay-0.experience")
    push = wires.make(book).push("replay-0.experience")
    for number in range(5):
        arrays = {"x": np.full(3, number)}
        until(lambda n=number, a=arrays: push.send(Message("chunk", {"seq": n}, a)))  # type: ignore[misc]
    got = [until(pull.receive) for _ in range(5)]
    assert [message.fields["seq"] for message in got] == list(range(5))
    assert [message.arrays["x"][0] for message in got] == list(range(5))
    assert got[0].sender == Identity("agent-0", 1, FINGERPRINT)
    assert pull.receive() is None
    assert (push.counters.sent, pull.counters.received) == (5, 5)


def test_a_push_without_a_peer_says_no_at_once(tcp_book: AddressBook, wires: Wires) -> None:
    push = wires.make(tcp_book).push("replay-0.experience")
    assert not push.writable()
    assert not push.send(Message("chunk"))
    assert push.counters.sent == 0


def test_a_push_to_a_full_peer_says_no_and_loses_nothing(book: AddressBook, wires: Wires) -> None:
    pull = wires.make(book, "replay-0").pull("replay-0.experience", high_water_mark=2)
    push = wires.make(book).push("replay-0.experience", high_water_mark=2)
    block = {"x": np.zeros(1 << 19)}
    until(push.writable)
    sent = 0
    quiet = time.monotonic() + 0.1
    while time.monotonic() < quiet:
        if push.send(Message("chunk", {"seq": sent}, block)):
            sent += 1
            quiet = time.monotonic() + 0.1
    assert 2 <= sent < 20
    assert [until(pull.receive).fields["seq"] for _ in range(sent)] == list(range(sent))


def test_published_messages_reach_every_subscriber_and_each_is_seen(
    book: AddressBook, wires: Wires
) -> None:
    publisher = wires.make(book, "learner").publisher("learner.parameters")
    first = wires.make(book, "ps").subscriber("learner.parameters")
    assert until(publisher.new_subscribers) == 1
    second = wires.make(book, "viewer").subscriber("learner.parameters")
    assert until(publisher.new_subscribers) == 1
    assert publisher.new_subscribers() == 0
    publisher.publish(Message("parameters", {"version": 3}, {"flat": np.arange(4, dtype=np.uint8)}))
    for subscriber in (first, second):
        message = until(subscriber.receive)
        assert message.fields == {"version": 3}
        np.testing.assert_array_equal(message.arrays["flat"], np.arange(4))


def test_publishing_without_or_with_a_slow_subscriber_never_waits(
    book: AddressBook, wires: Wires
) -> None:
    publisher = wires.make(book, "learner").publisher("learner.parameters", high_water_mark=1)
    publisher.publish(Message("parameters"))
    wires.make(book, "ps").subscriber("learner.parameters", high_water_mark=1)
    until(publisher.new_subscribers)
    start = time.monotonic()
    for _ in range(50):
        publisher.publish(Message("parameters", arrays={"flat": np.zeros(1 << 17)}))
    assert time.monotonic() - start < 2.0


def test_messages_above_the_limit_never_leave(book: AddressBook, wires: Wires) -> None:
    wires.make(book, "replay-0").pull("replay-0.experience")
    push = wires.make(book, max_message_bytes=1000).push("replay-0.experience")
    until(push.writable)
    with pytest.raises(OversizeError, match=r"'chunk' for replay-0\.experience .*limit is 1000"):
        push.send(Message("chunk", arrays={"x": np.zeros(1000)}))
    assert push.counters.sent == 0


class Complaints(list[tuple[str, str, str]]):
    """What a wire reports as refused."""

    def __call__(self, endpoint: str, sender: str, reason: str) -> None:
        self.append((endpoint, sender, reason))


def test_messages_of_another_run_are_dropped_counted_and_reported_once_per_sender(
    book: AddressBook, wires: Wires
) -> None:
    complaints = Complaints()
    pull = wires.make(book, "replay-0", on_reject=complaints).pull("replay-0.experience")
    stranger = wires.make(book, "agent-7", b"87654321").push("replay-0.experience")
    friend = wires.make(book).push("replay-0.experience")
    for _ in range(3):
        until(lambda: stranger.send(Message("chunk")))
    until(lambda: pull.receive() or pull.counters.rejected == 3)
    until(lambda: friend.send(Message("chunk")))
    assert until(pull.receive).sender.name == "agent-0"
    ((endpoint, sender, reason),) = complaints
    assert (endpoint, sender) == ("replay-0.experience", "agent-7")
    assert FINGERPRINT.hex() in reason
    assert b"87654321".hex() in reason


def test_undecodable_messages_are_dropped_and_the_socket_lives(
    book: AddressBook, wires: Wires
) -> None:
    complaints = Complaints()
    wire = wires.make(book, "replay-0", on_reject=complaints)
    pull, router = wire.pull("replay-0.experience"), wire.router("ps.requests")
    hostile = wires.raw(zmq.PUSH, connect=book["replay-0.experience"].connect)
    asking = wires.raw(zmq.DEALER, connect=book["ps.requests"].connect)
    for garbage in ([b""], [b"\xc1" * 100], [b"GET / HTTP/1.1"], [b"", b"", b""]):
        hostile.send_multipart(garbage)
        asking.send_multipart(garbage)
    until(lambda: pull.receive() or pull.counters.rejected == 4)
    until(lambda: router.receive() or router.counters.rejected == 4)
    assert len(complaints) == 2
    push = wires.make(book).push("replay-0.experience")
    until(lambda: push.send(Message("chunk")))
    assert until(pull.receive).kind == "chunk"


def test_a_published_message_that_does_not_decode_is_dropped(
    book: AddressBook, wires: Wires
) -> None:
    address = book["learner.parameters"].bind
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).parent.mkdir()
    hostile = wires.raw(zmq.PUB, bind=address)
    subscriber = wires.make(book, "ps").subscriber("learner.parameters")

    def refused() -> bool:
        for garbage in ([b"p"], [b"p", b"\xc1"], [b"pp", b"", b""]):
            hostile.send_multipart(garbage)
        return subscriber.receive() is not None or subscriber.counters.rejected >= 3

    assert until(refused)
    assert subscriber.counters.received == 0


@pytest.mark.parametrize(
    "talk",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff" * 4096,
        b"",
        # A greeting of the protocol, then a frame that claims to be larger than any message.
        b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48) + b"\x06" + struct.pack(">Q", 1 << 60),
    ],
    ids=["web browser", "noise", "silence", "endless frame"],
)
def test_what_is_no_peer_disturbs_no_connection(
    talk: bytes, tcp_book: AddressBook, wires: Wires
) -> None:
    pull = wires.make(tcp_book, "replay-0").pull("replay-0.experience")
    port = int(tcp_book["replay-0.experience"].bind.rpartition(":")[2])
    with tcp.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(talk)
        push = wires.make(tcp_book).push("replay-0.experience")
        until(lambda: push.send(Message("chunk")))
        assert until(pull.receive).kind == "chunk"


def test_connections_are_reported_as_they_come_and_go(tcp_book: AddressBook, wires: Wires) -> None:
    push = wires.make(tcp_book).push("replay-0.experience")
    assert list(push.connection_events()) == []
    server = wires.make(tcp_book, "replay-0")
    server.pull("replay-0.experience")
    assert until(lambda: list(push.connection_events())) == [True]
    server.close(0)
    assert until(lambda: list(push.connection_events())) == [False]
    pull = bind_again(server)
    assert until(lambda: list(push.connection_events())) == [True]
    until(lambda: push.send(Message("chunk")))
    assert until(pull.receive).kind == "chunk"
    push.close()


def bind_again(wire: Wire) -> PullSocket:
    """The port may still be closing."""

    def bind() -> PullSocket | None:
        try:
            return wire.pull("replay-0.experience")
        except UsageError:
            return None

    return until(bind)


def test_a_port_in_use_is_named_with_its_endpoint(tcp_book: AddressBook, wires: Wires) -> None:
    port = int(tcp_book["ps.requests"].bind.rpartition(":")[2])
    with tcp.create_server(("127.0.0.1", port)):
        wire = wires.make(tcp_book, "ps")
        with pytest.raises(UsageError, match=rf"cannot bind ps\.requests to tcp://.*:{port}"):
            wire.router("ps.requests")
    assert wire.sockets == []


def test_an_ipc_folder_that_has_gone_is_made_again_for_this_user_alone(
    tmp_path: Path, wires: Wires
) -> None:
    folder = tmp_path / "sockets"
    book = AddressBook.ipc(ENDPOINTS, folder)
    push = wires.make(book).push("replay-0.experience")
    pull = wires.make(book, "replay-0").pull("replay-0.experience")
    assert folder.stat().st_mode & 0o777 == 0o700
    until(lambda: push.send(Message("chunk")))
    assert until(pull.receive).kind == "chunk"


def test_a_closed_socket_leaves_no_file_and_removes_no_other(tmp_path: Path, wires: Wires) -> None:
    book = AddressBook.ipc(ENDPOINTS, tmp_path)
    first = wires.make(book, "ps").router("ps.requests")
    second = wires.make(book, "ps").router("ps.requests")  # takes the path over
    first.close()
    assert [path.name for path in tmp_path.iterdir()] == ["ps.requests"]
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_former_process_removes_meanwhile_is_made_again(
    tmp_path: Path, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = tmp_path / "sockets", Path.mkdir
    removed: list[Path] = []

    def mkdir(path: Path, *given: Any, **named: Any) -> None:
        made(path, *given, **named)
        if not removed:
            path.rmdir()
            removed.append(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    wires.make(AddressBook.ipc(ENDPOINTS, folder), "ps").router("ps.requests")
    assert removed == [folder]
    assert [path.name for path in folder.iterdir()] == ["ps.requests"]


def test_a_closed_socket_leaves_a_later_file_that_got_its_number(
    tmp_path: Path, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the number of a file that is gone to the next one."""
    book = AddressBook.ipc(ENDPOINTS, tmp_path)
    first, later = wires.make(book, "ps").router("ps.requests"), []
    remove = first._remove

    def remove_late(path: Path, made: tuple[int, int]) -> None:
        # libzmq has closed the file by now, so that its number is free.
        until(lambda: f" {path}\n" not in Path("/proc/net/unix").read_text())
        later.append(wires.make(book, "ps").router("ps.requests"))
        remove(path, made)

    monkeypatch.setattr(first, "_remove", remove_late)
    first.close()
    assert [path.name for path in tmp_path.iterdir()] == ["ps.requests"]
    later[0].close()
    assert list(tmp_path.iterdir()) == []


def test_an_ipc_folder_that_cannot_be_made_is_named(tmp_path: Path, wires: Wires) -> None:
    (tmp_path / "file").touch()
    book = AddressBook.ipc(ENDPOINTS, tmp_path / "file" / "sockets")
    with pytest.raises(UsageError, match=r"cannot bind replay-0\.experience to ipc://.*file"):
        wires.make(book).pull("replay-0.experience")


# In a process of its own, because libzmq aborts where it does not expect something.
HALF_READ = """
import itertools, sys
import numpy as np, zmq
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.socket_state import poll

LOOKS = {"look": lambda s: s.look(), "readable": lambda s: s.readable(),
         "poll": lambda s: poll([s], 0.0), "receive": lambda s: s.receive(), "nothing": id}

class Pair:
    def __init__(self, pattern, retired):
        self.context, book = zmq.Context(0), AddressBook.inproc(["ps.x"])
        self.ours, self.theirs = (Wire(self.context, book, Identity(name, 1, b"12345678"))
                                  for name in ("agent-0", "ps"))
        if retired:
            self.ours.retired = {}
        self.publishes = pattern == "subscriber"
        make = self.theirs.publisher if self.publishes else self.theirs.router
        self.server, self.client = make("ps.x"), getattr(self.ours, pattern)("ps.x")
        self.turn()

    def turn(self):
        for _ in range(3):
            self.server.look(), self.client.look()

    def send(self, number):
        fields, arrays = {"number": number}, {"a": np.zeros(30, np.uint8)}
        if self.publishes:
            self.server.publish(Message("news", fields, arrays))
        else:
            self.client.send("ask", {"id": number})
            self.server.reply(self.server.receive(), "news", fields, arrays)

    def close(self):
        for wire in (self.ours, self.theirs):
            wire.close(0)
        self.context.destroy(0)

for look, waiting, retired in itertools.product(LOOKS, (0, 1, 3), (False, True)):
    pair = Pair(sys.argv[1], retired)
    for number in range(waiting):
        pair.send(number)
    LOOKS[look](pair.client)
    if not retired:
        pair.ours.reconnect(["ps.x"])
        pair.turn()
        assert pair.client.receive() is None
        pair.send(99)
        assert pair.client.receive().fields["number"] == 99
    pair.close()
    sys.stdout.write(".")
"""


@pytest.mark.parametrize("pattern", ["subscriber", "dealer"])
def test_a_connection_within_a_process_ends_or_is_made_anew_whatever_waits_there(
    pattern: str,
) -> None:
    words = [sys.executable, "-c", HALF_READ, pattern]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, 5 * 3 * 2 * "."), done.stderr


def test_waiting_for_no_socket_still_waits() -> None:
    start = time.monotonic()
    poll([], 0.05)
    assert time.monotonic() - start >= 0.05


def test_threads_wait_for_no_socket_at_the_same_time() -> None:
    with ThreadPoolExecutor(4) as threads:
        waits = [threads.submit(poll, [], 0.01) for _ in range(20)]
    assert [wait.exception() for wait in waits] == [None] * 20


def test_a_wire_closes_what_it_made(book: AddressBook, wires: Wires) -> None:
    wire = wires.make(book, "replay-0")
    sockets = [wire.pull("replay-0.experience"), wire.router("ps.requests")]
    assert set(wire.counters()) == {"replay-0.experience", "ps.requests"}
    wire.close(0)
    assert all(socket.raw.closed for socket in sockets)
    assert wire.sockets == []


def test_a_machine_that_vanishes_is_noticed(tcp_book: AddressBook, wires: Wires) -> None:
    push = wires.make(tcp_book).push("replay-0.experience")
    assert push.raw.getsockopt(zmq.TCP_KEEPALIVE) == 1
    assert push.raw.getsockopt(zmq.TCP_KEEPALIVE_IDLE) == 30
    assert push.raw.getsockopt(zmq.TCP_MAXRT) == 60_000


def test_poll_does_not_sleep_when_something_lies_there(
    book: AddressBook, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = wires.make(book, "replay-0").pull("replay-0.experience")
    push = wires.make(book).push("replay-0.experience")
    until(lambda: push.send(Message("chunk")))
    until(pull.readable)
    slept: list[float] = []

    class Kernel:
        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            slept.append(milliseconds)
            return []

    monkeypatch.setattr(shared_module, "_poller", lambda descriptors: Kernel())
    poll([pull], 5.0)
    assert slept == [0.0]
    assert pull.receive() is not None
    poll([pull], 5.0)
    assert slept == [0.0, 5000.0]


def test_poll_sleeps_as_long_as_given_where_nothing_comes(book: AddressBook, wires: Wires) -> None:
    pull = wires.make(book, "replay-0").pull("replay-0.experience")
    push = wires.make(book).push("replay-0.experience")
    for _ in range(3):
        begin = time.monotonic()
        poll([pull], 0.03)
        assert time.monotonic() - begin >= 0.03
        assert pull.receive() is None
        until(lambda: push.send(Message("chunk")))
        # Nobody has looked since that it was the last.
        assert until(pull.receive) is not None


def test_what_poll_has_found_counts_for_the_next_look_only(wires: Wires) -> None:
    book = AddressBook.inproc(ENDPOINTS)
    pull = wires.make(book, "replay-0").pull("replay-0.experience")
    push = wires.make(book).push("replay-0.experience")
    poll([pull], 0.0)
    assert push.send(Message("chunk"))
    assert pull.receive() is None
    assert pull.receive() is not None


def test_poll_finds_whatever_came_and_nothing_else(wires: Wires) -> None:
    # In one thread a message is there as soon as it has been sent.
    book, dice = AddressBook.inproc(ENDPOINTS), np.random.default_rng(0)
    server, asker = wires.make(book, "ps"), wires.make(book)
    router, pull = server.router("ps.requests"), server.pull("replay-0.experience")
    dealer, push = asker.dealer("ps.requests"), asker.push("replay-0.experience")
    requests: list[Request] = []
    lying = dict.fromkeys(("requests", "answers", "chunks"), 0)
    most = dict(lying)
    for _ in range(5000):
        do = dice.integers(5)
        if do == 0:
            lying["requests"] += dealer.send("fetch") is not None
        elif do == 1:
            lying["chunks"] += push.send(Message("chunk"))
        elif do == 2 and requests:
            router.reply(requests.pop(), "noted")
            lying["answers"] += 1
        elif do == 3:
            poll([router, pull, dealer], 0.0)
            sides = [("chunks", pull.receive), ("answers", dealer.receive)]
            if (request := router.receive()) is not None:
                requests.append(request)
            came = {
                "requests": request is not None,
                **{name: take() is not None for name, take in sides},
            }
            assert came == {name: count > 0 for name, count in lying.items()}
            for name, is_here in came.items():
                lying[name] -= is_here
        most = {name: max(most[name], count) for name, count in lying.items()}
    assert min(most.values()) > 1
