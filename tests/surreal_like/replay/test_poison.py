"""Rows of a fenced sender are drawn no more, and rows that came late are removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from inspect import getgeneratorlocals
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from session.addons import add_ons
from session.config import Config
from session.folder import RunFolder
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import kinds
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.kept_memory import KeptMemory
from surreal_like.replay.receiver import ExperienceReceiver
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.storage import FENCED, NO_SENDER, SENDER
from surreal_like.replay.table import Table
from tests.surreal_like.replay.chunks import Sender, chunk_of, counting
from tests.surreal_like.replay.cluster import Cluster, config
from tests.surreal_like.replay.configs import configs

KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"type": "UniformReplay"},
    "by age": {"type": "UniformReplay", "age": {"max_versions": 1000}},
    "prioritized": {"type": "PrioritizedReplay"},
}
if "r2d2" in add_ons():
    SEQUENCE = {"length": 3, "burn_in": 1, "period": 1}
    KINDS["sequences"] = {"type": "SequenceReplay", "sequence": SEQUENCE}
QUEUE: dict[str, Any] = {"type": "FIFOReplay", "capacity": 200, "batch_size": 2, "min_size": 1}
OPEN = {"launcher": {"host": "127.0.0.1"}}


def table(kind: str = "uniform", *, capacity: int = 200, session: Any = OPEN) -> Table:
    replay = {"capacity": capacity, "min_size": 1, "batch_size": 4, **KINDS[kind]}
    made = load_replay_class({"replay": replay})(
        **configs(algo={"n_step": 1 if kind == "sequences" else 2}, session=session, **replay)
    )
    assert isinstance(made, Table)
    return made


def content(replay: Table) -> dict[str, Any]:
    """Everything that a batch depends on, by row."""
    storage = replay.storage
    places = storage.locate(np.arange(storage.oldest, storage.next_number))
    found: dict[str, Any] = {name: storage.take(name, places).tolist() for name in storage.names}
    found["next"] = storage.distance(places).tolist()
    found["sampleable"] = replay.selector.list_rows().tolist()
    return {**found, "end": storage.next_number, "mass": replay.mass, "size": replay.limiter.size}


def chunks(seed: int) -> Iterator[Chunk]:
    sender = Sender("agent-0", 2, Random(seed), counting())
    while True:
        yield sender.cut(4)


# -- roll-back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_roll_back_it_is_as_if_the_late_rows_had_never_come(kind: str) -> None:
    replay, twin = table(kind), table(kind)
    made = chunks(3)
    for _ in range(6):
        chunk = next(made)
        replay.insert_chunk(chunk)
        twin.insert_chunk(chunk)
    priorities = np.linspace(0.5, 2.0, len(twin.selector.list_rows()), dtype=np.float32)
    for each in (replay, twin):
        each.update_priorities(twin.selector.list_rows(), priorities)
    end = int(replay.statistics()["inserted"])
    for _ in range(5):
        replay.insert_chunk(next(made))
    assert content(replay) != content(twin)
    assert replay.roll_back(end) == 5 * 8
    assert content(replay) == content(twin)
    # Streams are cut there: what follows begins without a predecessor, as of a new incarnation.
    sender = Sender("agent-0", 2, Random(9), counting())
    sender.restart()
    for chunk in [sender.cut(4) for _ in range(5)]:
        replay.insert_chunk(chunk)
        twin.insert_chunk(chunk)
    assert content(replay) == content(twin)
    statistics = replay.statistics()
    assert statistics["size"] + statistics["evicted"] + 40 == 16 * 8
    assert len(replay.sample_columns(4)["actions"])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_gone_by_then_stay_evicted(kind: str) -> None:
    replay, made = table(kind, capacity=40), chunks(5)
    for _ in range(20):
        replay.insert_chunk(next(made))
    assert replay.roll_back(140) == 20
    assert replay.storage.oldest == 120
    assert replay.selector.list_rows().max() < 140
    assert len(replay.sample_columns(4)["actions"])
    assert replay.roll_back(8) == 20
    statistics = replay.statistics()
    assert (statistics["size"], statistics["sampleable"], statistics["evicted"]) == (0, 0, 120)
    replay.insert_chunk(next(made))
    assert replay.statistics()["size"] == 8


def test_a_queue_drops_all_that_it_holds() -> None:
    settings: dict[str, Any] = {
        "type": "FIFOReplay",
        "capacity": 200,
        "batch_size": 2,
        "min_size": 1,
    }
    settings |= {"replay_proportion": 0.5, "replay_capacity": 100, "batch_size": 4}
    replay = kinds.FIFOReplay(**configs(session={"sender": {"flush_iteration": 2}}, **settings))

    def insert(first: int, count: int) -> None:
        for number in range(first, first + count):
            chunk = chunk_of("FMM", "FMM", sequence=number)
            chunk.overlap = 1
            replay.insert_chunk(chunk)

    insert(1, 5)
    replay.sample_columns(4)
    assert replay.roll_back(0) == 3 * 4
    assert not replay.can_sample(4)
    statistics = replay.statistics()
    assert (statistics["size"], statistics["evicted"], statistics["replayable"]) == (0, 0, 0)
    insert(6, 2)
    assert not replay.sample_columns(4)["replayed"].any()


def test_a_training_that_is_rolled_back_collects_anew() -> None:
    settings: dict[str, Any] = {
        "type": "UniformReplay",
        "capacity": 200,
        "min_size": 1,
        "batch_size": 4,
    }
    turns = {"unroll_length": 8, "num_updates_per_train_iter": 3}
    session = {"sender": {"flush_iteration": 4}}
    replay = kinds.UniformReplay(**configs(session=session, iteration=turns, **settings))
    made = chunks(4)
    while replay.can_insert():
        replay.insert_chunk(next(made))
    before = replay.statistics()["size"]
    replay.sample_columns(4)
    assert not replay.can_insert()
    assert replay.roll_back(0) == before
    assert replay.can_insert()
    assert not replay.can_sample(4)
    statistics = replay.statistics()
    assert (statistics["size"], statistics["evicted"]) == (0, 0)


def test_a_kill_after_a_roll_back_brings_no_row_back() -> None:
    file = os.memfd_create("test")
    try:
        memory = KeptMemory(f"/proc/{os.getpid()}/fd/{file}", {"part": 1})
        replay, ledger, made = table("prioritized"), AckTracker(), chunks(3)
        replay.keep_in(memory.zeros)
        for _ in range(9):
            chunk = next(made)
            assert ledger.admit(chunk)
            replay.insert_chunk(chunk)
            ledger.count_inserted(chunk)
        ledger.rolled_back += replay.roll_back(40)
        memory.commit({"ledger": ledger.pack(), "replay": replay.counts()})
        os.close(memory._file)
        after, accounts = table("prioritized"), AckTracker()
        memory = KeptMemory(f"/proc/{os.getpid()}/fd/{file}", {"part": 1})
        assert memory.committed is not None
        after.keep_in(memory.zeros)
        accounts.unpack(memory.committed["ledger"])
        after.adopt(memory.committed["replay"])
        assert content(after) == content(replay)
        assert accounts.rolled_back == ledger.rolled_back == 32
        os.close(memory._file)
    finally:
        os.close(file)


# -- a fence --------------------------------------------------------------------------------------


def mixed(kind: str = "uniform") -> Table:
    """Rows of accounts 0 and 1 in turn."""
    replay = table(kind)
    for account, made in ((0, chunks(1)), (1, chunks(2))):
        for _ in range(4):
            chunk = next(made)
            chunk.sender, chunk.account = f"agent-{account}", account
            replay.insert_chunk(chunk)
    return replay


def senders(replay: Table) -> Any:
    rows = replay.selector.list_rows()
    return set(replay.storage.take(SENDER, replay.storage.locate(rows)).tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_fenced_sender_are_drawn_no_more(kind: str) -> None:
    replay = mixed(kind)
    assert senders(replay) == {0, 1}
    assert set(replay.sample_columns(400)[SENDER].reshape(-1).tolist()) == {0, 1}
    replay.fence([1])
    assert senders(replay) == {0}
    assert replay.limiter.size == len(replay.selector)
    assert set(replay.sample_columns(400)[SENDER].reshape(-1).tolist()) == {0}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fence_outlives_snapshots_and_roll_backs(kind: str) -> None:
    replay = mixed(kind)
    replay.fence([1])
    restored = table(kind)
    restored.restore(replay.state())
    assert senders(restored) == {0}
    restored.forget_senders()
    assert senders(restored) == {NO_SENDER}
    again = table(kind)
    again.restore(restored.state())
    again.roll_back(56)
    assert senders(again) == {NO_SENDER}
    every = np.concatenate(again.storage.read(SENDER))
    assert np.count_nonzero(every == FENCED) == 24


def test_a_snapshot_fits_also_where_guests_could_not_come_then_or_can_not_now() -> None:
    closed = table(session={})
    closed.insert_chunk(next(chunks(1)))
    assert SENDER not in closed.storage.names
    opened = table()
    opened.restore(closed.state())
    opened.insert_chunk(next(chunks(2)))
    assert np.concatenate(opened.storage.read(SENDER))[:8].tolist() == [NO_SENDER] * 8
    closed = table(session={})
    closed.restore(opened.state())
    closed.insert_chunk(next(chunks(3)))
    assert SENDER not in closed.storage.names


def test_unrolls_of_a_fenced_sender_leave_the_queue() -> None:
    settings: dict[str, Any] = {
        "type": "FIFOReplay",
        "capacity": 200,
        "batch_size": 2,
        "min_size": 1,
    }
    session = {"sender": {"flush_iteration": 2}, **OPEN}
    replay = kinds.FIFOReplay(**configs(session=session, **settings))
    for number in range(1, 7):
        chunk = chunk_of("FMM", "FMM", sequence=number, sender=f"agent-{number % 2}")
        chunk.overlap, chunk.account = 1, number % 2
        replay.insert_chunk(chunk)
    replay.fence([1])
    drawn = [set(replay.sample_columns(2)[SENDER].reshape(-1).tolist()) for _ in range(3)]
    assert drawn == [{0}] * 3
    assert not replay.can_sample(2)


# -- over sockets ---------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two shards; the second agent is a guest."""
    insert = ExperienceReceiver._insert

    def insert_as_guest(self: Any, chunk: Chunk, sender: Any, *, readable: bool) -> None:
        joined = sender.name == "agent-1"
        insert(self, chunk, sender._replace(joined=joined), readable=readable)

    monkeypatch.setattr(ExperienceReceiver, "_insert", insert_as_guest)
    whole = config(2)
    whole.session_config.launcher.host = "127.0.0.1"
    whole["run"] = Config({"part": 1})
    made = Cluster(tmp_path, whole, RunFolder(tmp_path / "run"))
    for index in range(2):
        made.start(index)
        made.send(index, 3)
    made.until(made.acked)
    yield made
    made.close()


def known(cluster: Cluster, **wanted: Any) -> None:
    """Waits for counts of the second shard."""

    def seen() -> bool:
        counts = cluster.client._shards[1].counts
        return counts is not None and all(counts[name] == each for name, each in wanted.items())

    cluster.until(seen)


def test_what_a_fenced_guest_sends_is_dropped_on_every_shard_and_start(cluster: Cluster) -> None:
    assert set(cluster.sample(40)) == {0, 1}
    known(cluster, inserted=30)
    assert cluster.client.guests() == {"agent-1"}

    def ready() -> set[int]:
        """Returns the shards of the batches that wait for the learner."""
        answers = cluster.client._ready
        return {getgeneratorlocals(cast(Any, each.batches))["shard"] for each in answers}

    while 1 not in ready():
        cluster.sample(1)
        cluster.until(lambda: cluster.client.waiting)
    cluster.client.fence({"agent-1"})
    # Also of the batches that had been sent before.
    drawn = set()
    for _ in range(40):
        cluster.until(lambda: cluster.client.waiting)
        sampled = cluster.client.next()
        drawn |= set() if sampled is None else set(sampled.columns["rewards"].tolist())
    assert drawn == {0.0}
    assert cluster.client.rows_left_out > 0
    cluster.send(1, 2)
    cluster.until(cluster.acked)
    known(cluster, inserted=30, sampleable=0, dropped={"fenced": 20})
    assert cluster.senders[1].window.dropped == 20
    # A shard that begins anew learns of it from the learner.
    cluster.stop(1)
    cluster.start(1, incarnation=2)
    cluster.until(lambda: cluster.client._shards[1].incarnation == 2)
    known(cluster, inserted=0, fenced=["agent-1"])
    # An agent of the run's own goes on.
    cluster.send(0, 2)
    cluster.until(cluster.acked)
    assert cluster.senders[0].window.dropped == 0


def test_a_learner_gets_no_batch_before_late_rows_are_removed(cluster: Cluster) -> None:
    client = cluster.client
    known(cluster, inserted=30)
    cluster.until(lambda: all(shard.counts for shard in client._shards))
    ends = {**client.ends(), "replay-0": (1, 20)}
    assert ends["replay-1"] == (1, 30)
    cluster.send(1, 2)
    cluster.until(cluster.acked)
    client.roll_back(ends)
    assert client.rolls_back
    assert client._next_shard([each.is_open(0.0) for each in client._shards]) is None
    cluster.until(lambda: not client.rolls_back)
    sizes = [shard.counts["size"] for shard in client._shards if shard.counts is not None]
    assert sizes == [20, 30]
    backs = [shard.counts["rolled_back"] for shard in client._shards if shard.counts is not None]
    assert backs == [10, 20]
    assert set(cluster.sample(40)) == {0, 1}


def test_a_shard_that_has_begun_anew_removes_all_that_it_has_not_restored(
    cluster: Cluster,
) -> None:
    cluster.until(lambda: all(shard.counts for shard in cluster.client._shards))
    ends = cluster.client.ends()
    cluster.stop(1)
    cluster.start(1, incarnation=2)
    cluster.until(lambda: cluster.client._shards[1].incarnation == 2)
    cluster.send(1, 1)
    cluster.until(cluster.acked)
    cluster.client.roll_back(ends)
    cluster.until(lambda: not cluster.client.rolls_back)
    known(cluster, size=0, rolled_back=10)


def test_after_a_roll_back_no_chunk_with_a_nan_comes_in_any_more(cluster: Cluster) -> None:
    def send_nan() -> None:
        shape = (5, 2)
        columns: dict[str, Any] = {
            "step_type": np.ones(shape, np.uint8),
            "reward": np.full(shape, np.nan, np.float32),
            "discount": np.ones(shape, np.float32),
            "version": np.zeros(shape, np.int64),
            "obs": np.zeros((*shape, 3), np.float32),
            "action": np.zeros(shape, np.int64),
        }
        cluster.until(lambda: cluster.senders[1].window.ready)
        cluster.senders[1].send(Chunk(columns, 0, [0, 1], env_steps=10))
        cluster.until(cluster.acked)

    # Of an own agent one chunk in 16 is checked, and this is none of these.
    known(cluster, inserted=30)
    send_nan()
    known(cluster, inserted=40)
    cluster.client.roll_back({"replay-0": (1, 30), "replay-1": (1, 30)})
    cluster.until(lambda: not cluster.client.rolls_back)
    known(cluster, size=30, rolled_back=10)
    send_nan()
    known(cluster, inserted=40, size=30, dropped={"wrong values": 10})
