"""A real shard is recorded: a recording has the chunks that it has inserted, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.folder import RunFolder
from surreal_like.addons.recording.journal import Journal
from surreal_like.addons.recording.reader import Recording
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.batch_server import ReplayService
from tests.addons.recording.recorded import (
    ACTION,
    OBS,
    assert_same_rows,
    keys,
    numbered,
    receive,
)
from tests.surreal_like.replay.cluster import Cluster, config
from tests.surreal_like.replay.conftest import events as events

Make = Callable[..., "Shard"]
Key = tuple[str, int, int]


class Shard:
    """A shard with memory that outlives it, and what its replay has really inserted."""

    def __init__(self, cluster: Cluster, keep: str) -> None:
        self.cluster, self.keep = cluster, keep
        self.starts = 0
        # First row and chunk: of the replay of now, and of those that were lost with all rows.
        self.rows: list[tuple[int, Chunk]] = []
        self.lost: list[Chunk] = []
        self.committed = 0
        self.refuses = False
        self.start()

    @property
    def service(self) -> ReplayService:
        service = self.cluster.frames[0]._service
        assert isinstance(service, ReplayService)
        return service

    def start(self) -> None:
        self.starts += 1
        self.cluster.start(0, incarnation=self.starts)
        self.cluster.until(lambda: self.cluster.frames[0]._service)
        replay = self.service._replay
        insert = replay.insert_chunk

        def log(chunk: Chunk) -> None:
            if self.refuses:
                raise DataError("does not fit")
            first = int(replay.statistics()["inserted"])
            insert(chunk)
            self.rows.append((first, chunk))

        replay.insert_chunk = log  # type: ignore[method-assign]

    def take(self, chunk: Chunk) -> None:
        self.service._intake._take(receive(chunk))

    def ack(self) -> None:
        self.service._intake.acks.send()
        self.committed = int(self.service._replay.statistics()["inserted"])

    def roll_back(self, end: int) -> None:
        self.service._intake.roll_back(end)
        self.rows = [row for row in self.rows if row[0] < end]
        self.committed = int(self.service._replay.statistics()["inserted"])

    def kill(self) -> None:
        # Its thread has written all, which is more than it has to.
        self.service._intake.recorder.close()
        self.cluster.stop(0)
        self.start()
        if self.service._recovery.goes_on:
            self.rows = [row for row in self.rows if row[0] < self.committed]
        else:
            # Before its first acks, a shard has nothing to go on with.
            assert self.keep == "none" or not self.committed
            self.lost += [chunk for _, chunk in self.rows]
            self.rows, self.committed = [], 0

    @property
    def expected(self) -> dict[Key, Chunk]:
        """The chunks that count; one that was inserted twice counts once."""
        found: dict[Key, Chunk] = {}
        for chunk in (*self.lost, *(chunk for _, chunk in self.rows)):
            found.setdefault((chunk.sender, chunk.incarnation, chunk.sequence), chunk)
        return found


def settings(what: str = "all", **replay: Any) -> Config:
    whole = config(1, **{"capacity": 100_000, **replay})
    whole.session_config.record.what = what
    whole.env_config.update({"obs_spec": OBS, "action_spec": ACTION})
    whole["run"] = Config({"id": "a-run", "part": 1})
    return whole


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Cluster] = []
    file = os.memfd_create("test")

    def build(keep: str = "process", what: str = "all", **replay: Any) -> Shard:
        whole = settings(what, **replay)
        whole.session_config.replay.keep = keep
        sockets = tmp_path / str(len(made))
        sockets.mkdir()
        memory = f"/proc/{os.getpid()}/fd/{file}"
        made.append(Cluster(sockets, whole, RunFolder(tmp_path / "run"), memory))
        return Shard(made[-1], keep)

    yield build
    for cluster in made:
        cluster.close()
    os.close(file)


def plain(sequence: int, sender: str, incarnation: int = 1) -> Chunk:
    made = numbered(sequence, sender=sender, incarnation=incarnation)
    made.columns = {**made.columns, "version": np.zeros_like(made.columns["version"])}
    return made


@pytest.mark.parametrize("keep", ["process", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_a_recording_has_exactly_the_inserted_chunks_that_count(
    make: Make, tmp_path: Path, keep: str, seed: int
) -> None:
    """Chunks that come again, late, or are refused; roll-backs; kills at any time."""
    random = Random(seed)
    shard = make(keep)
    sent: dict[str, list[Chunk]] = {"agent-0": [], "agent-1": []}
    incarnations = dict.fromkeys(sent, 1)
    done = dict.fromkeys(("new", "again", "refused", "ack", "back", "kill", "restart"), 0)
    for _ in range(400):
        what = random.choice(["new"] * 6 + ["again", "refused", "ack", "ack"] + list(done)[4:])
        if what in ("back", "kill", "restart") and random.random() < 0.5:
            continue
        name = random.choice(list(sent))
        done[what] += 1
        if what in ("new", "refused"):
            shard.refuses = what == "refused"
            sent[name].append(plain(len(sent[name]) + 1, name, incarnations[name]))
            shard.take(sent[name][-1])
        elif what == "again" and sent[name]:
            shard.refuses = False
            first = random.randrange(len(sent[name]))
            for each in sent[name][first:]:
                shard.take(each)
        elif what == "ack":
            shard.ack()
        elif what == "back":
            ends = [first for first, _ in shard.rows]
            shard.roll_back(random.choice(ends) if ends else 0)
        elif what == "kill":
            shard.kill()
        elif what == "restart":
            incarnations[name] += 1
            sent[name].clear()
    assert min(done.values()) > 3
    shard.ack()
    shard.cluster.stop(0)
    expected = shard.expected
    recording = Recording(tmp_path / "run")
    found = [chunk for _, chunk in recording.chunks()]
    assert not recording.damages
    assert [(each.sender, each.incarnation, each.sequence) for each in found] == list(expected)
    for got, chunk in zip(found, expected.values(), strict=True):
        assert_same_rows(got, chunk)


def test_rows_of_the_wire_are_recorded(make: Make, tmp_path: Path) -> None:
    shard = make()
    cluster = shard.cluster
    for sequence in range(1, 6):
        cluster.senders[0].send(plain(sequence, "agent-0"))
    cluster.until(cluster.acked)
    # At once: acks go when all is in the file.
    assert [key[2] for key in keys(tmp_path / "run")] == [1, 2, 3, 4, 5]


def test_a_recording_ends_with_a_clean_stop(make: Make, tmp_path: Path) -> None:
    shard = make()
    shard.take(plain(1, "agent-0"))
    thread = shard.service._intake.recorder.journal._thread
    shard.cluster.frames.pop(0).close()
    assert not thread.is_alive()
    assert keys(tmp_path / "run") == [("agent-0", 1, 1)]


def test_nothing_is_recorded_unless_it_is_asked_for(make: Make, tmp_path: Path) -> None:
    shard = make(what="none")
    shard.take(plain(1, "agent-0"))
    shard.ack()
    assert shard.service._intake.recorder is None
    assert not (tmp_path / "run" / "recording").exists()


def test_a_shard_without_a_run_folder_records_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings())
    try:
        cluster.start(0)
        cluster.until(lambda: cluster.frames[0]._service)
        service: Any = cluster.frames[0]._service
        assert service._intake.recorder is None
    finally:
        cluster.close()


def test_a_disk_that_hangs_ends_the_recording_and_not_the_shard(
    monkeypatch: pytest.MonkeyPatch, make: Make, events: list[str]
) -> None:
    monkeypatch.setattr(Journal, "_write_some", lambda self, segments: Event().wait(30))
    monkeypatch.setattr("surreal_like.addons.recording.journal._FLUSH_SECONDS", 0.05)
    monkeypatch.setattr("surreal_like.addons.recording.journal.AHEAD_BYTES", 10_000)
    monkeypatch.setattr("surreal_like.addons.recording.journal._CLOSE_SECONDS", 0.1)
    shard = make()
    cluster = shard.cluster
    for sequence in range(1, 60):
        cluster.until(lambda: cluster.senders[0].window.ready)
        cluster.senders[0].send(plain(sequence, "agent-0"))
    cluster.until(cluster.acked)
    assert cluster.senders[0].window.inserted == 3 * 59
    (said,) = [each for each in events if each.startswith("recording_")]
    assert said.startswith("recording_stopped the disk is too slow")


IMPORTS = """
import sys
import main.replay
from session.addons.hooks import RECORDER
from session.config.defaults import BASE_CONFIG
{}
assert not [name for name in sys.modules if name.startswith("surreal_like.addons.recording.rec")]
"""


def test_a_shard_imports_no_recorder_that_it_does_not_use() -> None:
    subprocess.run([sys.executable, "-c", IMPORTS.format("list(RECORDER)")], check=True)
