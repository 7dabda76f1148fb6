"""What a shard writes down: all that it acks, in order, and what happens where the disk fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.component import Component, Topology
from surreal_like.addons.recording import flight as flight_module
from surreal_like.addons.recording import journal as journal_module
from surreal_like.addons.recording import recorder as recorder_module
from surreal_like.addons.recording.flight import make_flight
from surreal_like.addons.recording.hooks import make_recorder
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.segments import Kind, Segment, SegmentWriter, list_segments
from tests.addons.recording.recorded import (
    FakeReplay,
    Recorded,
    assert_same_rows,
    config_of,
    keys,
    numbered,
    receive,
    write_shard,
)
from tests.polling import DEADLINE_SECONDS, until
from tests.runs.small_disk import fill, small_disk


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is not set, the disk hangs."""
    opened, append = threading.Event(), SegmentWriter.append

    def slow(self: SegmentWriter, *record: Any) -> None:
        opened.wait(60)
        append(self, *record)

    monkeypatch.setattr(SegmentWriter, "append", slow)
    yield opened
    opened.set()


def heads(path: Path) -> list[tuple[Kind, int]]:
    """Kinds and numbers of all records of a shard."""
    segments = map(Segment, list_segments(path / "replay-0"))
    return [(head.kind, head.number) for each in segments for head in each.heads]


def test_chunks_come_back_as_they_came_in_their_order(tmp_path: Path) -> None:
    chunks = [numbered(n, sender=f"agent-{n % 2}", steps=n) for n in range(1, 6)]
    shard = write_shard(tmp_path, chunks)
    found = [chunk for _, chunk in Recording(tmp_path).chunks()]
    for got, expected in zip(found, chunks, strict=True):
        assert_same_rows(got, expected)
    assert not shard.events
    rows = [(Kind.CHUNK, number) for number in (0, 1, 3, 6, 10)]
    assert heads(shard.path) == [(Kind.ABOUT, 0), (Kind.BEGIN, 0), *rows]


def test_a_process_that_goes_on_and_a_roll_back_note_their_number(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(1), numbered(2)])
    shard = Recorded(tmp_path, goes_on=True, inserted=3)
    shard.accept(numbered(2))
    shard.roll_back(3)
    shard.accept(numbered(3))
    shard.recorder.close()
    assert heads(shard.path)[-5:] == [
        (Kind.ABOUT, 3),
        (Kind.GO_ON, 3),
        (Kind.CHUNK, 3),
        (Kind.CUT, 3),
        (Kind.CHUNK, 3),
    ]


def test_a_replay_that_counts_no_rows_loses_none_by_a_roll_back(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    shard.replay.statistics = dict
    shard.accept(numbered(1))
    shard.recorder.cut()
    shard.accept(numbered(2))
    shard.recorder.close()
    assert keys(tmp_path) == [("agent-0", 1, 1), ("agent-0", 1, 2)]


def test_what_was_flushed_is_in_the_file_of_a_process_that_is_killed(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    for number in range(1, 50):
        shard.accept(numbered(number))
        shard.recorder.flush()
        # Read beside it, as after a kill.
        assert len(keys(tmp_path)) == number
    shard.recorder.close()


def test_the_oldest_part_makes_room_and_that_is_said_once(tmp_path: Path) -> None:
    size = sum(map(len, receive(numbered(1, steps=50)).frames))
    shard = Recorded(tmp_path, limit_bytes=40 * size)
    for number in range(1, 201):
        shard.accept(numbered(number, steps=50))
        shard.recorder.flush()
        stored = sum(path.stat().st_size for path in (shard.path / "replay-0").iterdir())
        assert stored <= 44 * size, number
    shard.recorder.close()
    assert shard.events == ["recording_full its oldest part makes room for new rows"]
    found = keys(tmp_path)
    # The newest ones, without a gap.
    assert found == [("agent-0", 1, n) for n in range(201 - len(found), 201)]
    assert 20 < len(found) < 40
    names = [path.name for path in list_segments(shard.path / "replay-0")]
    assert names[0] > "000010.seg"


def test_segments_of_processes_before_count_to_the_limit(tmp_path: Path) -> None:
    size = sum(map(len, receive(numbered(1, steps=50)).frames))
    for part in range(6):
        chunks = [numbered(10 * part + n, steps=50) for n in range(1, 11)]
        shard = write_shard(tmp_path, chunks, limit_bytes=20 * size)
    stored = sum(path.stat().st_size for path in (shard.path / "replay-0").iterdir())
    assert stored <= 25 * size
    assert keys(tmp_path)[-1] == ("agent-0", 1, 60)


class FakeTime:
    """Time that goes on only while a journal waits for its disk.

    Args:
        monkeypatch: as of pytest.
        shard: the recorder.
        seconds: time that the disk takes for what waits; None: it hangs.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, shard: Recorded, seconds: float | None
    ) -> None:
        self.now = self.waited = 0.0
        self._seconds, written = seconds, shard.recorder.journal._written
        self._wait_for = written.wait_for
        monkeypatch.setattr(journal_module, "monotonic", lambda: self.now)
        monkeypatch.setattr(written, "wait_for", self._wait)

    def _wait(self, predicate: Callable[[], bool], timeout: float) -> None:
        passed = timeout if self._seconds is None else min(timeout, self._seconds)
        if passed == self._seconds:
            assert self._wait_for(predicate, DEADLINE_SECONDS)
        self.now += passed
        self.waited += passed


@pytest.mark.parametrize("seconds", [0.9, 0.45, 0.2, None])
def test_a_slow_disk_holds_acks_for_a_part_of_the_time_only(
    seconds: float | None, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Recorded(tmp_path)
    time = FakeTime(monkeypatch, shard, seconds)
    if seconds is not None:
        gate.set()
    for number in range(1, 1000):
        shard.accept(numbered(number))
        shard.recorder.flush()
        time.now += 0.1
    assert 0.1 * time.now < time.waited < 0.2 * time.now
    (said,) = shard.events
    assert said.startswith("slow acks have waited 2 of 10 s for the disk of the recording: ")
    assert "a kill may lose up to 64 MiB of acked rows" in said
    gate.set()
    shard.recorder.close()


def test_acks_wait_again_once_the_disk_is_quick(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Recorded(tmp_path)
    with monkeypatch.context() as patch:
        time = FakeTime(patch, shard, None)
        for number in range(1, 100):
            shard.accept(numbered(number))
            shard.recorder.flush()
        assert time.waited == 2.0
    gate.set()
    monkeypatch.setattr(journal_module, "monotonic", lambda: 12.0)
    shard.accept(numbered(100))
    shard.recorder.flush()
    assert len(keys(tmp_path)) == 100
    shard.recorder.close()


def test_a_quick_disk_is_waited_for_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = Recorded(tmp_path)
    time = FakeTime(monkeypatch, shard, 0.001)
    for number in range(1, 500):
        shard.accept(numbered(number))
        shard.recorder.flush()
        assert not shard.recorder.journal._waiting
        time.now += 0.01
    shard.recorder.close()
    assert not shard.events


def test_a_disk_that_is_too_slow_ends_the_recording_with_the_first_missing_row(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, receive(numbered(1)).frames))
    monkeypatch.setattr(journal_module, "_FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(journal_module, "AHEAD_BYTES", 10 * size)
    shard = Recorded(tmp_path)
    for number in range(1, 40):
        shard.accept(numbered(number))
        shard.recorder.flush()
        journal = shard.recorder.journal
        assert journal._put_bytes - journal._written_bytes <= 10 * size
    assert shard.recorder.journal.stopped
    shard.roll_back(6)
    gate.set()
    shard.recorder.close()
    slow, said = shard.events
    assert slow.startswith("slow ")
    found = keys(tmp_path)
    assert said.startswith("recording_stopped the disk is too slow: ")
    assert said.endswith(f"; row {3 * len(found)} and later ones are not in it")
    assert found == [("agent-0", 1, n) for n in range(1, len(found) + 1)]
    assert 5 < len(found) < 15


@pytest.mark.parametrize("fails_at", [1, 3])
def test_a_disk_error_ends_the_recording_with_the_first_missing_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    shard = Recorded(tmp_path)
    for number in range(1, fails_at + 1):
        shard.accept(numbered(number))
    shard.recorder.flush()

    def full(file: int, buffers: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        for number in range(fails_at + 1, 20):
            shard.accept(numbered(number))
            shard.recorder.flush()
        shard.recorder.close()
    (said,) = shard.events
    assert said.startswith("recording_stopped OSError(28, 'No space left on device')")
    assert said.endswith(f"; row {3 * fails_at} and later ones are not in it")
    assert keys(tmp_path) == [("agent-0", 1, n) for n in range(1, fails_at + 1)]


@pytest.mark.root
def test_a_full_disk_ends_the_recording_and_not_the_shard(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk, 2):
        shard = Recorded(disk)
        shard.accept(numbered(1))
        shard.recorder.flush()
        fill(disk / "ballast")
        for number in range(2, 200):
            shard.accept(numbered(number, steps=100))
            shard.recorder.flush()
        (disk / "ballast").unlink()
        shard.recorder.close()
        (said,) = shard.events
        assert "No space left on device" in said
        assert said.endswith("; row 3 and later ones are not in it")
        assert keys(disk) == [("agent-0", 1, 1)]


def test_a_folder_that_cannot_be_made_ends_the_recording(tmp_path: Path) -> None:
    (tmp_path / "recording").write_text("a file")
    shard = write_shard(tmp_path, [numbered(1)])
    (said,) = shard.events
    assert said.startswith("recording_stopped ")
    assert said.endswith("; row 0 and later ones are not in it")


def test_the_end_waits_for_the_disk_but_not_for_ever(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_CLOSE_SECONDS", 0.2)
    shard = Recorded(tmp_path)
    shard.accept(numbered(1))
    shard.recorder.close()
    assert shard.recorder.journal._thread.is_alive()
    assert shard.events == [
        "recording_stopped the disk is too slow: the end has waited 0.2 s for it; "
        "row 0 and later ones are not in it"
    ]


def test_an_error_of_the_disk_corrects_the_number_of_the_first_missing_row(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, receive(numbered(1)).frames))
    monkeypatch.setattr(journal_module, "_FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(journal_module, "AHEAD_BYTES", 10 * size)
    gate.set()
    shard = Recorded(tmp_path)
    shard.accept(numbered(1))
    until(shard.recorder.journal._is_idle)
    gate.clear()
    for number in range(2, 40):
        shard.accept(numbered(number))
        shard.recorder.flush()

    def full(file: int, buffers: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    gate.set()
    shard.recorder.close()
    late, said = [event for event in shard.events if event.startswith("recording_stopped")]
    assert "the disk is too slow" in late
    assert "No space left on device" in said
    assert said.endswith("; row 3 and later ones are not in it")
    assert keys(tmp_path) == [("agent-0", 1, 1)]


def test_the_end_corrects_the_number_of_the_first_missing_row(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, receive(numbered(1)).frames))
    monkeypatch.setattr(journal_module, "_FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(journal_module, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(journal_module, "AHEAD_BYTES", 10 * size)
    shard = Recorded(tmp_path)
    for number in range(1, 40):
        shard.accept(numbered(number))
        shard.recorder.flush()
    shard.recorder.close()
    numbers = [int(each.split("; row ")[1].split()[0]) for each in shard.events[1:]]
    assert numbers[0] > numbers[1] == 0


@pytest.mark.parametrize(
    ("names", "keep", "parts"),
    [
        (("replay-0", "replay-1"), "none", 2),
        (("replay-0", "replay-1"), "all", 3),
        (("replay-left-0", "replay-left-1", "replay-right-0"), "none", 3),
        (("replay-left-0", "replay-left-1", "replay-right-0"), "all", 5),
    ],
)
def test_shards_and_learners_share_the_limit_of_a_run(
    names: tuple[str, ...], keep: str, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of()
    config.session_config.record.what, config.session_config.flight.keep = "all", keep
    context: Any = SimpleNamespace(
        config=config,
        folder=RunFolder(tmp_path),
        topology=Topology(Component(name, "replay", "main.replay") for name in names),
    )

    def limit_of(*args: object, limit_bytes: float, **given: object) -> float:
        return limit_bytes

    monkeypatch.setattr(recorder_module, "Recorder", limit_of)
    monkeypatch.setattr(flight_module, "Flight", limit_of)
    replay: Any = FakeReplay()
    limits: list[Any] = [make_recorder(context, replay, goes_on=False)]
    if keep == "all":
        learner: Any = SimpleNamespace(policy_name="default")
        limits.append(make_flight(context, learner))
    assert limits == [10e9 / parts] * len(limits)
