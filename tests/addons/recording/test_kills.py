"""Processes are killed while a recording is sent and recorded again: every row is there once."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from surreal_like.addons.chaos.faults import KILL
from surreal_like.addons.recording import writer as writer_module
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.writer import RecordingWriter
from tests.runs.command import CARTPOLE, Record, Train

ROWS, STEPS = 200_000, 199
PARTS = ("data-0", "replay-0", "learner")
# Small chunks, one after the other: the kills come while they are sent.
CHUNK_ROWS = 100


def write(path: Path) -> None:
    """Episodes whose rows have numbers, and the last of which is cut."""
    with RecordingWriter.of_env(path, "gym:CartPole-v1") as writer:
        for begin in range(0, ROWS, STEPS + 1):
            numbers = np.arange(begin, begin + STEPS + 1)
            obs = np.stack([numbers, -numbers, numbers % 7, numbers % 11], axis=1)
            end = begin + STEPS + 1 < ROWS
            writer.add(obs, numbers[:-1] % 2, np.ones(STEPS), terminated=end)


def numbers(path: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers of all rows of a recording, in their order."""
    recording = Recording(path)
    found = [chunk.columns["obs"][..., 0].reshape(-1) for _, chunk in recording.chunks()]
    assert not recording.damages
    return np.concatenate(found).astype(np.int64)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kills_lose_no_row_and_double_none(
    run_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    monkeypatch.setattr(writer_module, "_ROWS", CHUNK_ROWS)
    write(tmp_path / "numbers")
    words = (
        "session_config.agent.num=0",
        "session_config.evaluator.num=0",
        f"session_config.dataset.path={tmp_path / 'numbers'}",
        "session_config.record.what=all",
        "session_config.sender.max_unacked_chunks=2",
        "session_config.checkpoint.period=500",
        "session_config.learner.report_seconds=0.2",
        "session_config.stop={iterations: 100000000}",
        f"learner_config.replay={{capacity: {2 * ROWS}, samples_per_insert: 0, min_size: 1000}}",
    )
    with Train(run_folder, CARTPOLE, *words) as train:
        sent = 0
        train.until(lambda: train.line.get("iterations", 0) > 0)
        for _ in range(3):
            for name in PARTS:
                sent += 10_000
                train.until(lambda: train.line["replay"]["size"] >= sent)  # noqa: B023
                sent = train.line["replay"]["size"]
                assert sent < ROWS - 10_000
                record_property(f"rows at the kill of {name}", sent)
                record_property("recovery_seconds", train.strike(KILL, name))
        train.until(lambda: train.line["replay"]["size"] >= ROWS, seconds=200)
        train.learn(200)
        train.signal(signal.SIGINT)
        assert train.wait() == 130, train.words
    result = train.result
    assert {name: result["components"][name]["restarts"] for name in PARTS} == dict.fromkeys(
        PARTS, 3
    )
    rows = result["experience"]
    assert (rows["pushed"], rows["inserted"]) == (ROWS, ROWS)
    lacking = ("dropped", "unacked", "holes", "unknown_at_most", "lost", "rolled_back")
    assert not any(rows[name] for name in lacking), rows
    assert (result["env_steps"], result["episodes"]) == (0, 0)
    assert train.line["replay"]["size"] == ROWS
    # What was recorded meanwhile are the same rows, in the same order.
    np.testing.assert_array_equal(numbers(run_folder), np.arange(ROWS))
    # Each process of the shard has a part of its own.
    assert len(list((run_folder / "recording" / "replay-0").glob("*"))) == 4
    assert not {"recording_stopped", "recording_damaged"} & {e["event"] for e in train.events}
