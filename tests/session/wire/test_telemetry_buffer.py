"""Telemetry in front of a socket: bounded, oldest dropped and counted, never in the way."""

import threading
import time
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from session.errors import OversizeError
from session.wire.codec import Message
from session.wire.one_way_sockets import PushSocket
from session.wire.telemetry_buffer import Channel


class Slow(PushSocket):
    """A push socket that takes so many messages and then no more."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken: list[Message] = []

    def writable(self) -> bool:
        return self.takes > 0

    def send(self, message: Message) -> bool:
        if not self.takes:
            return False
        self.takes -= 1
        self.taken.append(message)
        return True


def numbers(socket: Slow) -> list[int]:
    return [record["n"] for message in socket.taken for record in message.fields["records"]]


def test_records_leave_in_order_and_in_few_messages() -> None:
    socket = Slow(takes=100)
    channel = Channel(socket, "loggerplex")
    for n in range(1200):
        channel.put({"n": n})
    assert channel.flush()
    assert numbers(socket) == list(range(1200))
    assert [len(message.fields["records"]) for message in socket.taken] == [500, 500, 200]
    assert {message.kind for message in socket.taken} == {"loggerplex"}


def test_arrays_travel_with_their_record() -> None:
    socket = Slow(takes=1)
    channel = Channel(socket, "tensorplex")
    channel.put({"n": 0})
    channel.put({"n": 1}, {"counts": np.arange(3)})
    channel.flush()
    (message,) = socket.taken
    assert list(message.arrays) == ["1/counts"]


def test_what_cannot_leave_stays() -> None:
    socket = Slow(takes=1)
    channel = Channel(socket, "loggerplex")
    for n in range(700):
        channel.put({"n": n})
    assert not channel.flush()
    assert len(channel) == 200
    socket.takes = 9
    assert channel.flush()
    assert numbers(socket) == list(range(700))


@given(st.lists(st.integers(0, 30) | st.just(-1), max_size=30), st.integers(1, 20))
def test_nothing_is_lost_uncounted(steps: list[int], buffer: int) -> None:
    """Against a list: a number puts so many records, -1 lets one message through."""
    socket = Slow(takes=0)
    channel = Channel(socket, "loggerplex", buffer=buffer)
    kept: list[int] = []
    left: list[int] = []
    put = dropped = 0
    for step in steps:
        for _ in range(step):
            channel.put({"n": put})
            kept.append(put)
            put += 1
        dropped += max(0, len(kept) - buffer)
        kept = kept[-buffer:]
        if step < 0:
            socket.takes = 1
            channel.flush()
            socket.takes = 0
            left += kept
            kept = []
        assert (numbers(socket), len(channel), channel.dropped) == (left, len(kept), dropped)
    if socket.taken:
        assert socket.taken[-1].fields["dropped"] <= channel.dropped


def test_without_a_socket_records_age() -> None:
    channel = Channel(None, "loggerplex", buffer=3)
    for n in range(10):
        channel.put({"n": n})
    assert not channel.flush()
    assert (len(channel), channel.dropped) == (3, 7)
    start = time.monotonic()
    channel.close(5.0)
    assert time.monotonic() - start < 1.0
    assert (len(channel), channel.dropped) == (0, 10)


def test_what_waits_moves_to_the_channel_that_comes_later() -> None:
    socket = Slow(takes=100)
    early, late = Channel(None, "loggerplex", buffer=3), Channel(socket, "loggerplex")
    for n in range(5):
        early.put({"n": n}, picture(1))
    late.put({"n": -1})
    early.hand_over(late, lambda record: record | {"m": 1} if record["n"] != 3 else None)
    early.put({"n": 5})
    early.hand_over(Channel(None, "loggerplex"), lambda record: None)  # there is one already
    early.put({"n": 6})
    assert late.flush()
    assert numbers(socket) == [-1, 2, 4, 5, 6]
    assert (len(early), late.dropped) == (0, 2)
    assert all("m" in record for m in socket.taken for record in m.fields["records"][1:])


def test_a_channel_with_a_socket_hands_nothing_over() -> None:
    first, second = Channel(Slow(takes=0), "loggerplex"), Channel(None, "loggerplex")
    first.hand_over(second, lambda record: record)
    first.put({"n": 1})
    assert (len(first), len(second)) == (1, 0)


def test_nothing_is_lost_while_another_thread_records() -> None:
    early, late = Channel(None, "loggerplex"), Channel(None, "loggerplex")

    def record() -> None:
        for n in range(5000):
            early.put({"n": n})

    thread = threading.Thread(target=record)
    thread.start()
    early.hand_over(late, lambda record: record)
    thread.join()
    assert (len(early), len(late)) == (0, 5000)


class Refusing(Slow):
    """Says that it can be written to, and then cannot, every other time."""

    def send(self, message: Message) -> bool:
        self.takes -= 1
        if self.takes % 2:
            return False
        self.taken.append(message)
        return True


def test_nothing_is_lost_or_turned_round_while_another_thread_sends() -> None:
    socket = Refusing(takes=1 << 60)
    channel = Channel(socket, "loggerplex", buffer=1 << 30)
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            channel.flush()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for n in range(5000):
            channel.put({"n": n}, {"a": np.zeros(n % 7)})
    finally:
        ended.set()
        thread.join()
    while not channel.flush():
        pass
    assert numbers(socket) == list(range(5000))
    assert (channel.dropped, channel._array_bytes) == (0, 0)


def test_what_could_not_be_sent_is_dropped_where_newer_records_need_the_room() -> None:
    channel = Channel(None, "loggerplex", buffer=3)

    class Late(Slow):
        def send(self, message: Message) -> bool:
            channel.put({"n": 9})  # by another thread
            return False

    channel._socket = Late(takes=1)
    for n in range(3):
        channel.put({"n": n})
    assert not channel.flush()
    assert [record["n"] for record, _ in channel._records] == [1, 2, 9]
    assert channel.dropped == 1


def test_what_comes_after_the_end_is_dropped() -> None:
    channel = Channel(Slow(takes=9), "loggerplex")
    channel.close()
    channel.put({"n": 1}, picture(1))
    assert (len(channel), channel.dropped, channel._array_bytes) == (0, 1, 0)


def test_closing_waits_for_a_dead_server_no_longer_than_its_deadline() -> None:
    channel = Channel(Slow(takes=0), "loggerplex")
    channel.put({"n": 0})
    start = time.monotonic()
    channel.close(0.1)
    assert 0.1 <= time.monotonic() - start < 1.0
    assert channel.dropped == 1


def picture(megabytes: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"image": np.zeros(megabytes << 20, np.uint8)}


def test_large_arrays_travel_in_messages_of_their_own() -> None:
    socket = Slow(takes=100)
    channel = Channel(socket, "tensorplex")
    for n, megabytes in enumerate([1, 9, 9, 30, 1]):
        channel.put({"n": n}, picture(megabytes))
    assert channel.flush()
    assert [[record["n"] for record in m.fields["records"]] for m in socket.taken] == [
        [0, 1],
        [2],
        [3],
        [4],
    ]


def test_the_memory_of_arrays_is_bounded_too() -> None:
    socket = Slow(takes=0)
    channel = Channel(socket, "tensorplex")
    for n in range(10):
        channel.put({"n": n}, picture(20))
    assert (len(channel), channel.dropped) == (3, 7)
    socket.takes = 9
    channel.flush()
    assert numbers(socket) == [7, 8, 9]


def test_what_is_larger_than_any_message_is_dropped_and_counted() -> None:
    class Narrow(Slow):
        def send(self, message: Message) -> bool:
            if message.arrays:
                raise OversizeError("too large")
            return super().send(message)

    socket = Narrow(takes=9)
    channel = Channel(socket, "tensorplex")
    channel.put({"n": 0}, picture(17))
    channel.put({"n": 1})
    assert channel.flush()
    assert (numbers(socket), channel.dropped) == ([1], 1)
