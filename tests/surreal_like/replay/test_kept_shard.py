"""A replay server that is killed goes on with its rows and accounts, from memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.folder import RunFolder
from surreal_like.replay import kept_memory, recovery
from tests.surreal_like.replay.cluster import BATCH, Cluster, config

Make = Callable[..., Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Cluster] = []
    file = os.memfd_create("test")

    def build(keep: str = "process", **replay: Any) -> Cluster:
        whole = config(1, **replay)
        whole.session_config.replay.keep = keep
        sockets = tmp_path / str(len(made))
        sockets.mkdir()
        folder, memory = RunFolder(tmp_path / "run"), f"/proc/{os.getpid()}/fd/{file}"
        made.append(Cluster(sockets, whole, folder, memory))
        made[-1].start(0)
        return made[-1]

    yield build
    for cluster in made:
        cluster.close()
    os.close(file)


def counts(cluster: Cluster, key: str) -> Any:
    cluster.until(lambda: key in cluster.client.counts())
    for _ in range(600):
        cluster.step()
    return cluster.client.counts()[key]


def kill(cluster: Cluster, incarnation: int) -> None:
    cluster.stop(0)
    cluster.start(0, incarnation=incarnation)


@pytest.mark.parametrize(
    "kind", [pytest.param("UniformReplay", marks=pytest.mark.slow), "PrioritizedReplay"]
)
def test_a_killed_shard_goes_on(make: Make, events: list[str], kind: str) -> None:
    cluster = make(type=kind)
    cluster.send(0, 7)
    cluster.until(cluster.acked)
    cluster.until(lambda: cluster.client.waiting)
    sampled = cluster.client.next()
    assert sampled is not None
    if kind == "PrioritizedReplay":
        cluster.client.update_priorities(sampled, np.full(BATCH, 0.5, np.float32))
    before = counts(cluster, "replay-0/1")
    kill(cluster, 2)
    after = counts(cluster, "replay-0/2")
    same = ("size", "sampleable", "mass", "evicted", "senders", "inserted", "added", "ledger")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert (before["goes_on"], after["goes_on"], after["restored"]) == (False, True, 70)
    assert events.count("restored 70 rows, from memory") == 1
    # What comes next is stored behind them, and a second kill does the same.
    cluster.send(0, 3)
    cluster.until(cluster.acked)
    kill(cluster, 3)
    third = counts(cluster, "replay-0/3")
    assert (third["size"], third["added"], cluster.senders[0].window.inserted) == (100, 100, 100)


@pytest.mark.slow
def test_a_queue_and_a_shard_without_memory_begin_empty(make: Make) -> None:
    for number, cluster in enumerate((make("none"), make(type="FIFOReplay", capacity=200))):
        cluster.send(0, 2)
        cluster.until(cluster.acked)
        kill(cluster, 2)
        found = counts(cluster, "replay-0/2")
        assert (found["size"], found["goes_on"]) == (0, False), number


def test_rows_of_another_kind_of_replay_are_left_out(make: Make) -> None:
    first = make()
    first.send(0, 2)
    first.until(first.acked)
    first.stop(0)
    assert counts(make(type="PrioritizedReplay"), "replay-0/1")["size"] == 0


def test_rows_with_other_columns_than_those_of_the_agent_are_given_up(
    make: Make, events: list[str]
) -> None:
    cluster = make()
    cluster.send(0, 2)
    cluster.until(cluster.acked)
    columns = {name: {"type": "int8", "dim": []} for name in ("obs", "step_type")}
    cluster.config.learner_config.replay.columns = columns
    kill(cluster, 2)
    found = counts(cluster, "replay-0/2")
    assert (found["size"], found["goes_on"], found["inserted"], found["senders"]) == (
        0,
        False,
        0,
        {},
    )
    (said,) = [event for event in events if event.startswith("snapshot_bad")]
    assert "memory: rows of before: column 'action' is unknown here" in said


@pytest.mark.parametrize(("found", "slower"), [("[never]", True), ("[advise] never", False)])
def test_large_observations_are_kept_where_that_is_as_fast(
    make: Make,
    events: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: str,
    slower: bool,
) -> None:
    huge_pages = tmp_path / "shmem_enabled"
    huge_pages.write_text(found)
    monkeypatch.setattr(kept_memory, "_HUGE_PAGES", huge_pages)
    for size, not_kept in ((4096, slower), (4095, False)):
        monkeypatch.setattr(recovery, "_largest_observation", lambda env, size=size: size)
        events.clear()
        cluster = make("auto")
        cluster.send(0, 1)
        cluster.until(cluster.acked)
        assert any(event.startswith("memory_not_kept") for event in events) == not_kept
        cluster.stop(0)


def test_memory_that_cannot_be_had_is_said_and_the_run_goes_on(
    make: Make, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, about: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(recovery, "KeptMemory", refuse)
    cluster = make()
    cluster.send(0, 2)
    cluster.until(cluster.acked)
    (said,) = [event for event in events if event.startswith("memory_not_kept")]
    assert "if this process is killed, its rows are lost" in said


def test_the_size_of_observations_is_that_of_the_largest_part() -> None:
    env = config(1).env_config
    assert recovery._largest_observation(env) == 0
    env.obs_spec = {
        "image": {"type": "uint8", "dim": [1, 84, 84]},
        "speed": {"type": "float32", "dim": [3]},
    }
    assert recovery._largest_observation(env) == 84 * 84
