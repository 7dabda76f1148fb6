"""Batches on their way to the learner's device."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.data.batch import Sampled
from surreal_like.learner.device_prefetch import AHEAD, DevicePrefetch, DeviceTransfer
from surreal_like.replay.storage import SENDER
from tests.polling import until


def columns(number: int) -> dict[str, np.ndarray]:
    return {
        "obs": np.full((64, 8), number, np.float32),
        "actions": np.full(64, number, np.int64),
        "dones": np.full(64, number % 2, np.bool_),
    }


def test_on_the_cpu_nothing_is_copied() -> None:
    given = columns(3)
    tensors = DeviceTransfer(torch.device("cpu"))(given)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "obs": torch.float32,
        "actions": torch.int64,
        "dones": torch.bool,
    }
    given["obs"][0, 0] = 7.0
    assert tensors["obs"][0, 0] == 7.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_cuda_arrays_may_be_used_again_at_once() -> None:
    feed, given, sums = DeviceTransfer(torch.device("cuda")), columns(0), []
    for number in range(1, 50):
        for name, column in columns(number).items():
            given[name][...] = column
        tensors = feed(given)
        sums.append(tensors["obs"].sum() + tensors["actions"].sum())
    assert [float(total) for total in sums] == [64 * 9 * number for number in range(1, 50)]


class StandIn:
    """Stands in for a device: copies are made in this memory, once the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began: list[int] = []
        self.users: list[threading.Thread] = []
        self.fails = False

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(like)

    def copy(self, staged: Any) -> Any:
        self.began.append(int(staged["actions"][0]))
        assert threading.current_thread().name == "feed"
        if self.fails:
            raise MemoryError("no memory on the device")
        assert self.gate.wait(60.0)
        return {name: tensor.clone() for name, tensor in staged.items()}, object()

    def wait(self, event: Any) -> None:
        assert event is not None

    def use(self, tensors: Any, event: Any) -> None:
        self.users.append(threading.current_thread())


class OneBuffer:
    """A replay whose batches are all in the same memory, which the next one overwrites."""

    def __init__(self, last: int = 10**9) -> None:
        self.memory = {**columns(0), SENDER: np.zeros(64, np.int64)}
        self.memory["indices"] = np.zeros(64, np.int64)
        self.number, self.last = 0, last
        self.left_out: set[int] = set()

    def next(self) -> Sampled | None:
        if self.number == self.last:
            return None
        self.number += 1
        for column in self.memory.values():
            column[...] = self.number
        return Sampled(dict(self.memory), 0, 0, {}, last=self.number % 2 == 0)

    def leaves_out(self, sampled: Sampled) -> bool:
        return int(sampled.columns["indices"][0]) in self.left_out


def ahead_of(replay: OneBuffer, device: StandIn) -> DevicePrefetch:
    return DevicePrefetch(replay.next, replay.leaves_out, device)


def test_batches_ahead_come_in_order_and_keep_what_replay_sent() -> None:
    replay, device = OneBuffer(), StandIn()
    feed = ahead_of(replay, device)
    held: list[Any] = []
    for number in range(1, 200):
        found = feed.next()
        assert found is not None
        sampled, tensors = found
        assert replay.number - number <= AHEAD
        assert (sampled.last, sampled.columns.keys()) == (number % 2 == 0, replay.memory.keys())
        # Replay's memory has a later batch by now, of which these are no views.
        assert SENDER not in tensors
        assert all(
            (column == number).all() for column in sampled.columns.values() if column.dtype != bool
        )
        held.append((number, tensors["obs"]))
    assert all(bool((obs == number).all()) for number, obs in held), "tensors stay as they are"
    assert set(device.users) == {threading.main_thread()}
    assert feed.size_bytes == sum(column.nbytes for column in replay.memory.values())


def test_the_next_batch_is_copied_while_an_update_runs() -> None:
    replay, device = OneBuffer(), StandIn()
    feed = ahead_of(replay, device)
    assert feed.next() is not None
    device.gate.clear()
    # The update of batch 1 runs now; the copy of a later one has begun without a call.
    until(lambda: len(device.began) > 1)
    assert (device.began[:2], replay.number) == ([1, 2], 2)
    device.gate.set()
    assert feed.next() is not None
    until(lambda: len(device.began) > 2)
    assert replay.number <= 2 + AHEAD


def test_at_most_two_batches_are_ahead() -> None:
    replay, device = OneBuffer(), StandIn()
    feed = ahead_of(replay, device)
    for number in range(1, 20):
        assert feed.next() is not None
        until(lambda: len(device.began) == replay.number)
        feed._top_up()
        feed._top_up()
        assert replay.number == number + AHEAD
        assert len(feed) == AHEAD


def test_a_batch_ahead_that_must_not_be_used_any_more_is_left_out() -> None:
    replay, device = OneBuffer(last=6), StandIn()
    feed = ahead_of(replay, device)
    found = feed.next()
    replay.left_out = {2, 3, 6}  # a guest was fenced, during the update
    seen = []
    while found is not None:
        seen.append(int(found[0].columns["indices"][0]))
        found = feed.next()
    assert seen == [1, 4, 5]
    assert feed.next() is None


def test_the_error_of_a_copy_is_raised_where_the_batch_is_needed() -> None:
    replay, device = OneBuffer(), StandIn()
    feed = ahead_of(replay, device)
    assert feed.next() is not None
    until(lambda: len(device.began) > 1)
    device.fails = True
    assert feed.next() is not None
    with pytest.raises(MemoryError, match="no memory on the device"):
        feed.next()
    device.fails = False
    assert feed.next() is not None


def test_the_time_spent_waiting_for_copies_is_counted() -> None:
    feed = ahead_of(OneBuffer(), StandIn())
    assert feed.next() is not None
    assert feed.pop_waited() > 0.0
    assert feed.pop_waited() == 0.0


def test_the_thread_ends_with_its_feed() -> None:
    feed = ahead_of(OneBuffer(), StandIn())
    assert feed.next() is not None
    thread = feed._thread
    assert thread.is_alive()
    del feed
    thread.join(60.0)
    assert not thread.is_alive()
