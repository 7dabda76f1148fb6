"""Several shards over real sockets: what is sampled of each, and what becomes of a lost one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.wire.socket_state import poll
from surreal_like.experience import send_window
from surreal_like.replay import shared_memory
from tests.surreal_like.replay.cluster import BATCH, Cluster, config

UNIFORM = "UniformReplay"
PRIORITIZED = "PrioritizedReplay"
FIFO = "FIFOReplay"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents give up their shard after a second."""
    monkeypatch.setattr(send_window, "FAILOVER_SECONDS", 1.0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def build(shards: int = 2, **replay: Any) -> Cluster:
        made.append(Cluster(tmp_path, config(shards, **replay)))
        for index in range(shards):
            made[-1].start(index)
        return made[-1]

    yield build
    for cluster in made:
        cluster.close()


@pytest.mark.slow
def test_rows_of_a_fuller_shard_come_as_often_as_those_of_another(
    make: Callable[..., Cluster],
) -> None:
    cluster = make()
    cluster.send(0, 30)
    cluster.send(1, 10)
    cluster.until(cluster.acked)
    cluster.until(lambda: len(cluster.client.counts()) == 2)
    for _ in range(600):  # counts from after the last insert
        cluster.step()
    cluster.sample(20)
    rows = cluster.sample(200)
    # 298 and 98 rows have a successor.
    assert rows[0] / (rows[0] + rows[1]) == pytest.approx(298 / 396, abs=0.02)


@pytest.mark.parametrize("kind", [UNIFORM, FIFO])
def test_counts_of_returns_come_with_batches(make: Callable[..., Cluster], kind: str) -> None:
    algo = {"normalize_rewards": True, "gamma": 0.5}
    size = 2 if kind == FIFO else BATCH
    cluster = make(type=kind, algo=algo, batch_size=size)
    for sender in (0, 1):
        cluster.send(sender, 4)
    cluster.until(cluster.acked)
    found: dict[int, list[float]] = {}
    while len(found) < 2:
        cluster.until(lambda: cluster.client.waiting)
        sampled = cluster.client.next()
        assert sampled is not None
        assert sampled.returns is not None
        found[sampled.shard] = list(sampled.returns)
    for shard, (count, mean, squares) in found.items():
        # The reward of each row is the number of its sender; the streams go on in each chunk.
        steps = [shard * (2.0 - 0.5 ** (t - 1)) for t in range(1, 21)]
        assert count == 40
        assert mean == pytest.approx(np.mean(steps))
        assert squares / count == pytest.approx(np.var(steps), abs=1e-12)


def test_shards_are_asked_in_proportion_to_their_mass(make: Callable[..., Cluster]) -> None:
    cluster = make(type=PRIORITIZED, priority={"alpha": 1.0, "beta": 1.0, "epsilon": 1e-3})
    cluster.send(0, 20)
    cluster.send(1, 20)
    cluster.until(cluster.acked)

    def rare() -> bool:
        """Makes rows of shard 1 a quarter as likely, until most of them are."""
        sampled = cluster.client.next()
        if sampled is not None and sampled.shard == 1:
            cluster.client.update_priorities(sampled, np.full(BATCH, 0.25, np.float32))
        mass = {key: shard["mass"] for key, shard in cluster.client.counts().items()}
        return mass.get("replay-0/1") == 198 and mass.get("replay-1/1", 99) < 60

    cluster.until(rare)
    for _ in range(600):
        cluster.step()
    cluster.sample(20)
    weights: dict[int, set[float]] = {0: set(), 1: set()}
    rows: Counter[int] = Counter()
    for _ in range(200):
        cluster.until(lambda: cluster.client.waiting)
        sampled = cluster.client.next()
        assert sampled is not None
        rows[sampled.shard] += 1
        weights[sampled.shard] |= set(np.unique(sampled.columns["weights"]).tolist())
    mass = {k: shard["mass"] for k, shard in cluster.client.counts().items()}
    share = mass["replay-0/1"] / sum(mass.values())
    assert rows[0] / 200 == pytest.approx(share, abs=0.02)
    # Over both shards a row of mass 1 has a quarter of the weight of one of mass 0.25.
    assert weights == {0: {0.25}, 1: {0.25, 1.0}} or weights == {0: {0.25}, 1: {1.0}}


@pytest.mark.slow
def test_a_lost_shard_is_passed_over_and_its_agent_goes_to_the_next(
    make: Callable[..., Cluster],
) -> None:
    cluster = make()
    cluster.send(0, 4)
    cluster.send(1, 4)
    cluster.until(cluster.acked)
    cluster.stop(1)
    cluster.sample(20)
    assert cluster.sample(30)[1] == 0
    cluster.send(1, 4)
    cluster.until(cluster.acked)
    assert cluster.senders[1].window.inserted == 80
    for _ in range(300):
        cluster.step()
    assert cluster.sample(60)[1] > 0
    counts = cluster.client.counts()["replay-0/1"]
    assert counts["senders"]["agent-1/1"]["inserted"] == 40
    assert counts["senders"]["agent-1/1"]["base"] == 40


@pytest.mark.slow
def test_an_agent_returns_to_its_own_shard(make: Callable[..., Cluster]) -> None:
    cluster = make()
    cluster.send(1, 3)
    cluster.until(cluster.acked)
    cluster.stop(1)
    cluster.send(1, 3)
    cluster.until(cluster.acked)
    cluster.start(1, incarnation=2)
    cluster.until(lambda: cluster.senders[1]._route.way.shard == 1)
    cluster.send(1, 3)
    cluster.until(cluster.acked)
    window = cluster.senders[1].window
    assert (window.pushed, window.inserted, window.dropped) == (90, 90, 0)
    cluster.until(lambda: "replay-1/2" in cluster.client.counts())
    for _ in range(600):
        cluster.step()
    here = cluster.client.counts()["replay-1/2"]["senders"]["agent-1/1"]
    assert (here["base"], here["inserted"], here["holes"]) == (60, 30, 0)


@pytest.mark.slow
def test_an_agent_whose_shard_never_comes_takes_the_next(make: Callable[..., Cluster]) -> None:
    cluster = make(3)
    cluster.stop(1)
    cluster.stop(2)
    cluster.send(1, 2)
    cluster.until(cluster.acked)
    assert cluster.senders[1]._route.way.shard == 0
    assert cluster.senders[1].window.inserted == 20


def test_a_shard_that_withholds_does_not_stop_the_others(make: Callable[..., Cluster]) -> None:
    cluster = make()
    cluster.send(0, 4)
    cluster.send(1, 4)
    cluster.until(cluster.acked)
    cluster.sample(4)
    frozen = cluster.frames.pop(1)
    assert cluster.sample(40)[0] > 30 * BATCH
    cluster.frames[1] = frozen
    cluster.until(lambda: cluster.sample(1)[1])


def test_unrolls_of_all_shards_come(make: Callable[..., Cluster]) -> None:
    cluster = make(type=FIFO, batch_size=2, capacity=400)
    cluster.client._fields["batch_size"] = 2
    for sender in (0, 1, 1, 0):
        cluster.send(sender, 1)
    assert cluster.sample(4) == {0: 20, 1: 20}


def test_waiting_batches_of_older_versions_are_left_out(make: Callable[..., Cluster]) -> None:
    cluster = make(1, type=FIFO, batch_size=2, capacity=400)
    cluster.client._fields["batch_size"] = 2
    cluster.send(0, 2)
    cluster.until(lambda: cluster.client.waiting)
    # Rows of version 0 were acted before a trial loaded another one.
    cluster.client.since = 1
    assert cluster.client.next() is None
    assert not cluster.client.waiting


def copied(cluster: Cluster) -> dict[str, Any]:
    """The next batch."""
    cluster.until(lambda: cluster.client.waiting)
    sampled = cluster.client.next()
    assert sampled is not None
    return {name: each.copy() for name, each in sampled.columns.items()}


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches go through shared memory, though they are small."""
    monkeypatch.setattr(shared_memory, "LEAST_BYTES", 1)
    monkeypatch.setattr("surreal_like.replay.shard_connection.ANSWER_BYTES", 1)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("kind", [UNIFORM, PRIORITIZED, FIFO])
def test_batches_through_shared_memory_are_as_those_that_are_sent(
    tmp_path: Path, kind: str
) -> None:
    all_in = {} if kind == FIFO else {"min_size": 298}
    drawn: dict[bool, list[dict[str, Any]]] = {}
    for shares in (True, False):
        cluster = Cluster(tmp_path, config(1, type=kind, queue_bound=100, **all_in))
        cluster.start(0)
        (shard,) = cluster.client._shards
        assert shard.lends
        shard.lends = shares
        cluster.send(0, 30)
        drawn[shares] = [copied(cluster) for _ in range(5)]
        assert (shard.slab is not None) == shares
        cluster.close()
    for one, other in zip(drawn[True], drawn[False], strict=True):
        assert one.keys() == other.keys()
        for name, column in one.items():
            np.testing.assert_array_equal(column, other[name])


@pytest.mark.usefixtures("small_is_large")
def test_a_batch_in_shared_memory_lasts_until_the_one_after_it(
    make: Callable[..., Cluster],
) -> None:
    cluster = make(1)
    cluster.send(0, 30)
    cluster.until(cluster.acked)
    cluster.sample(3)
    shared = cluster.client._shards[0]
    assert shared.slab is not None
    for _ in range(50):
        cluster.until(lambda: cluster.client.waiting)
        sampled = cluster.client.next()
        assert sampled is not None
        before = {name: each.copy() for name, each in sampled.columns.items()}
        for _ in range(5):  # what is under way comes meanwhile
            cluster.step()
        for name, column in before.items():
            np.testing.assert_array_equal(sampled.columns[name], column)
    under_way = [asked.slot for asked in shared.asked.values()]
    assert len(set(under_way)) == len(under_way)


@pytest.mark.usefixtures("small_is_large")
def test_a_reply_of_a_shard_that_is_gone_gets_no_memory(make: Callable[..., Cluster]) -> None:
    cluster = make(2)
    shard = cluster.client._shards[1]
    shard.lends = False  # its replies come through the socket
    cluster.send(0, 20)
    cluster.send(1, 20)
    cluster.until(cluster.acked)
    cluster.until(lambda: [cluster.client.next(), *shard.asked][1:])
    while (reply := shard.batches.receive()) is None:
        cluster.frames[1].step()
        poll([shard.batches], 0.01)
    cluster.stop(1)
    cluster.until(lambda: shard.lost)
    shard.lends = True
    cluster.client._take(1, shard, reply)  # as if libzmq had kept it
    assert shard.slab is None
    assert not shard.is_open(cluster.clock.now())


@pytest.mark.usefixtures("small_is_large")
def test_memory_is_lent_anew_to_a_shard_that_starts_again(make: Callable[..., Cluster]) -> None:
    cluster = make(2)
    cluster.send(0, 20)
    cluster.send(1, 20)
    cluster.until(cluster.acked)
    first = cluster.lent(1)
    cluster.stop(1)
    cluster.until(lambda: cluster.client._shards[1].slab is None)
    cluster.start(1, incarnation=2)
    cluster.send(1, 20)
    assert cluster.lent(1) is not first
    assert cluster.sample(100)[1]
