"""Batches report of how many environment steps their rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal_like.experience import send_window
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.shard_connection import LearnedSteps
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.cluster import Cluster, config
from tests.surreal_like.replay.test_fifo_selector import Filled

FIFO, UNIFORM = "FIFOReplay", "UniformReplay"
# Of a chunk of the cluster, and of its batch of four unrolls of 5 steps x 2 streams.
CHUNK, QUEUED = 10, 40


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Cluster]]:
    monkeypatch.setattr(send_window, "FAILOVER_SECONDS", 1.0)
    made: list[Cluster] = []

    def build(kind: str, shards: int = 1) -> Cluster:
        made.append(Cluster(tmp_path, config(shards, type=kind)))
        for index in range(shards):
            made[-1].start(index)
        return made[-1]

    yield build
    for cluster in made:
        cluster.close()


def learn(cluster: Cluster, batches: int) -> None:
    """Takes so many batches, as a learner does; all of them must come."""
    for _ in range(batches):
        cluster.until(lambda: cluster.client.waiting)
        sampled = cluster.client.next()
        assert sampled is not None
        cluster.client.count_steps(sampled)


def learn_from(cluster: Cluster, chunks: int) -> None:
    """Takes batches until they report of so many chunks, and some more: they report of no more.

    Batches that lay ready were drawn before the newest chunks came.
    """
    for _ in range(1000):
        learn(cluster, 1)
        if cluster.client.learned_steps >= chunks * CHUNK:
            break
    learn(cluster, 20)
    assert cluster.client.learned_steps == chunks * CHUNK


@pytest.mark.parametrize("shards", [1, 2])
def test_of_a_queue_they_are_those_of_the_rows_in_the_batches(
    make: Callable[..., Cluster], shards: int
) -> None:
    cluster = make(FIFO, shards)
    for sender in range(shards):
        cluster.send(sender, 12)
    for batches in range(1, 3 * shards + 1):
        learn(cluster, 1)
        # Whatever lies ready already.
        assert cluster.client.learned_steps == batches * QUEUED


@pytest.mark.parametrize("shards", [1, 2])
def test_of_others_they_are_those_of_all_rows_that_came(
    make: Callable[..., Cluster], shards: int
) -> None:
    cluster = make(UNIFORM, shards)
    for sender in range(shards):
        cluster.send(sender, 7)
    cluster.until(cluster.acked)
    learn_from(cluster, 7 * shards)
    cluster.send(0, 2)
    cluster.until(cluster.acked)
    learn_from(cluster, 7 * shards + 2)


def learn_all(cluster: Cluster, kind: str, chunks: int) -> None:
    """Takes the batches of so many chunks; of a queue there are no more."""
    if kind == UNIFORM:
        learn_from(cluster, chunks)
        return
    while cluster.client.learned_steps < chunks * CHUNK:
        learn(cluster, 1)
    assert cluster.client.learned_steps == chunks * CHUNK


@pytest.mark.parametrize("kind", [FIFO, UNIFORM])
def test_they_go_on_after_a_shard_was_lost(make: Callable[..., Cluster], kind: str) -> None:
    cluster = make(kind)
    cluster.send(0, 8)
    cluster.until(cluster.acked)
    learn_all(cluster, kind, 8)
    cluster.stop(0)
    cluster.start(0, incarnation=2)
    cluster.send(0, 8)
    cluster.until(cluster.acked)
    learn_all(cluster, kind, 16)


def test_another_learner_goes_on_with_them(make: Callable[..., Cluster]) -> None:
    cluster = make(UNIFORM)
    cluster.send(0, 4)
    cluster.until(cluster.acked)
    learn_from(cluster, 4)
    kept = cluster.client.save_learned()
    cluster.client.restore_learned({})
    assert cluster.client.learned_steps == 0
    cluster.client.restore_learned(kept)
    # The shard is the same: its rows do not count twice.
    learn_from(cluster, 4)


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        ([(1, (0, 10)), (1, (0, 30)), (1, (0, 20))], 30),
        # It goes on with all, with the rows of a snapshot, with none.
        ([(1, (0, 30)), (2, (30, 5))], 35),
        ([(1, (0, 30)), (2, (20, 5))], 35),
        ([(1, (0, 30)), (2, (0, 5)), (2, (0, 6))], 36),
        # More than the last batch has reported.
        ([(1, (0, 30)), (2, (50, 5))], 55),
    ],
)
def test_no_incarnation_of_a_shard_counts_twice(
    reports: list[tuple[int, tuple[int, int]]], total: int
) -> None:
    learned = LearnedSteps()
    for incarnation, reported in reports:
        learned.add(incarnation, reported, consumes=False)
    assert learned.total == total
    assert LearnedSteps(*learned.state()).total == total


def chunk(sequence: int, rows: int, env_steps: int) -> Chunk:
    """A chunk of four rows, the first of which is no step."""
    found = chunk_of("FMMM", sequence=sequence)
    found.rows, found.env_steps = rows, env_steps
    return found


@pytest.mark.parametrize(
    ("before", "new", "steps"),
    [
        # Rows may stand for more or fewer steps: the totals of the sender count.
        ([], chunk(1, 4, 7), 7),
        ([chunk(1, 4, 7)], chunk(2, 8, 7), 0),
        ([chunk(1, 4, 7)], chunk(2, 8, 16), 9),
        # The one before is not here: its sender has come from another shard.
        ([], chunk(5, 20, 900), 3),
        ([chunk(1, 4, 7)], chunk(5, 20, 900), 3),
        # It was sent again, after the later one.
        ([chunk(1, 4, 3), chunk(3, 12, 9)], chunk(2, 8, 6), 3),
    ],
)
def test_a_chunk_counts_once_over_all_shards(before: list[Chunk], new: Chunk, steps: int) -> None:
    ledger = AckTracker()
    for each in before:
        assert ledger.admit(each)
        ledger.count_inserted(each)
    assert ledger.count_new_steps(new) == steps


@pytest.mark.parametrize(
    "again", [lambda ledger: ledger.state(), lambda ledger: ledger.pack()], ids=["state", "pack"]
)
def test_a_shard_that_goes_on_knows_the_steps_before(again: Callable[..., Any]) -> None:
    ledger, other = AckTracker(), AckTracker()
    ledger.env_steps = 12
    kept = again(ledger)
    (other.unpack if "packed" in kept else other.restore)(kept)
    assert other.env_steps == 12


def test_samples_that_are_drawn_again_are_of_no_new_steps() -> None:
    selector = Filled([], replayed=(1, 2), keep=4)
    selector.known = [0] * 6
    for number in range(6):
        selector.arriving = 10 + number, 0
        selector.mark(4 * number, np.arange(4) < 2)
    selector.sample(4)
    assert selector.steps == 10 + 11
    selector.sample(4)
    assert selector.steps == 12
    # The batch could not be sent.
    selector.undo_sample()
    selector.sample(4)
    assert selector.steps == 12


def test_steps_of_a_chunk_of_many_streams_are_split() -> None:
    whole = chunk_of(*["MMMM"] * 7)
    whole.steps = 23
    parts = [part.steps for part in whole.parts(2)]
    assert sum(parts) == 23
    assert len(parts) == 4
