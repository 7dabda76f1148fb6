"""A shard that ends leaves its rows, and the next one in its place goes on with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.folder import RunFolder
from surreal_like.coordinator.stop_rule import still_here
from surreal_like.experience.row_accounts import RowAccounts, RowFates
from tests.session.damage import seal_again
from tests.surreal_like.replay.cluster import BATCH, Cluster, config

PRIORITIZED = "PrioritizedReplay"
Make = Callable[..., Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Cluster] = []

    def build(
        folder: str = "run", part: int = 1, incarnation: int = 1, on: bool = True, **replay: Any
    ) -> Cluster:
        whole = config(1, **replay)
        whole.session_config.replay.snapshot = on
        whole["run"] = Config({"part": part})
        sockets = tmp_path / str(len(made))
        sockets.mkdir()
        made.append(Cluster(sockets, whole, RunFolder(tmp_path / folder)))
        made[-1].start(0, incarnation=incarnation)
        return made[-1]

    yield build
    for cluster in made:
        cluster.close()


def end(cluster: Cluster) -> None:
    """SIGTERM."""
    frame = cluster.frames[0]
    assert frame._service is not None
    frame._service.drain()
    cluster.until(lambda: frame.finished)
    del cluster.frames[0]


def counts(cluster: Cluster, key: str) -> Any:
    cluster.until(lambda: key in cluster.client.counts())
    for _ in range(600):
        cluster.step()
    return cluster.client.counts()[key]


@pytest.mark.parametrize(
    "kind", [pytest.param("UniformReplay", marks=pytest.mark.slow), PRIORITIZED]
)
def test_rows_and_accounts_outlive_the_process(make: Make, kind: str) -> None:
    cluster = make(type=kind)
    cluster.send(0, 7)
    cluster.until(cluster.acked)
    before = counts(cluster, "replay-0/1")
    if kind == PRIORITIZED:
        sampled = cluster.client.next()
        assert sampled is not None
        cluster.client.update_priorities(sampled, np.full(BATCH, 0.5, np.float32))
        before = counts(cluster, "replay-0/1")
        assert before["mass"] < before["size"]
    end(cluster)
    cluster.start(0, incarnation=2)
    after = counts(cluster, "replay-0/2")
    same = ("size", "sampleable", "mass", "evicted", "senders", "inserted", "ledger")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    cluster.send(0, 1)  # goes on behind its predecessors
    cluster.until(cluster.acked)
    assert counts(cluster, "replay-0/2")["sampleable"] == before["sampleable"] + 10
    assert cluster.senders[0].window.inserted == 80


@pytest.mark.slow
def test_a_snapshot_that_is_restored_draws_on(make: Make) -> None:
    cluster = make()
    cluster.send(0, 5)
    cluster.until(cluster.acked)
    states = []
    for incarnation in (1, 2):
        if incarnation == 2:
            end(cluster)
            cluster.start(0, incarnation=2)
        counts(cluster, f"replay-0/{incarnation}")
        service: Any = cluster.frames[0]._service
        states.append(service._replay.state()["selector"]["generator"])
    assert states[0] == states[1]


@pytest.mark.slow
def test_unrolls_outlive_the_process_too(make: Make) -> None:
    kind = "FIFOReplay"
    cluster = make(type=kind, capacity=200, replay_proportion=0.5, replay_capacity=100)
    cluster.send(0, 12)
    cluster.until(cluster.acked)
    before = counts(cluster, "replay-0/1")
    assert before["size"] > 0
    assert before["replayed"] > 0
    end(cluster)
    cluster.start(0, incarnation=2)
    after = counts(cluster, "replay-0/2")
    same = ("size", "bytes", "senders", "inserted")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["replayed"] == after["sampled"] == 0  # the learner adds up what each start gave
    rows = before["size"]
    cluster.until(lambda: cluster.client.next() and counts_size(cluster) < rows)


def counts_size(cluster: Cluster) -> int:
    return int(cluster.client.counts()["replay-0/2"]["size"])


def test_a_sender_that_has_left_is_not_waited_for_by_the_next_process(make: Make) -> None:
    cluster = make()
    cluster.send(0, 2)
    cluster.senders[0].send_goodbye()
    cluster.until(cluster.acked)
    end(cluster)
    cluster.start(0, incarnation=2)
    assert still_here({"replay-0": counts(cluster, "replay-0/2")}) == set()


@pytest.mark.slow
def test_the_next_part_of_a_run_has_the_rows_and_begins_its_accounts_anew(make: Make) -> None:
    accounts, first = RowAccounts(), make()
    first.send(0, 3)
    first.until(first.acked)
    accounts.add_shard("replay-0/1", counts(first, "replay-0/1"))
    # The learner is killed before it is given these.
    first.send(0, 2)
    first.until(first.acked)
    assert accounts.rows().inserted == 30
    end(first)
    second = make(part=2, incarnation=2)
    found = counts(second, "replay-0/2")
    assert (found["size"], found["senders"]) == (50, {})
    assert second.sample(3)[0] == 3 * BATCH
    for _ in range(2):
        accounts.add_shard("replay-0/2", counts(second, "replay-0/2"))
        assert (accounts.rows(), accounts.lost()) == (RowFates(50, 50), 0)


def test_nothing_is_written_unless_asked_for(make: Make) -> None:
    cluster = make(on=False)
    cluster.send(0, 3)
    cluster.until(cluster.acked)
    end(cluster)
    assert cluster.folder is not None
    assert list(cluster.folder.checkpoints.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "spec_hash", "type", "columns"])
def test_what_does_not_fit_is_reported_and_left(make: Make, events: list[str], damage: str) -> None:
    cluster = make()
    cluster.send(0, 3)
    cluster.until(cluster.acked)
    end(cluster)
    assert cluster.folder is not None
    path = cluster.folder.checkpoints / "replay-0" / "1"
    if damage == "cut":
        (path / "0.npy").write_bytes((path / "0.npy").read_bytes()[:-1])
    elif damage == "columns":
        cluster.config.learner_config.replay.columns = {"obs": {"type": "int8", "dim": []}}
    else:
        seal_again(path, **{damage: "another"})
    cluster.start(0, incarnation=2)
    assert counts(cluster, "replay-0/2")["size"] == 0
    complaint = next(line for line in events if line.startswith("snapshot_bad"))
    said = {"cut": "0.npy has", "columns": "rows of before: column 'action' is unknown"}
    assert said.get(damage, "another kind of rows") in complaint


def test_a_full_disk_ends_nothing(
    make: Make, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make()
    cluster.send(0, 3)
    cluster.until(cluster.acked)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    end(cluster)
    assert any("snapshot_failed" in line and "No space left" in line for line in events)
    assert cluster.folder is not None
    assert list((cluster.folder.checkpoints / "replay-0").iterdir()) == []
