"""Replay that collects and gives batches in turns, in a whole run."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.command import CARTPOLE, Train, clean

STEPS, STREAMS = 32, 16

WAITING = ("learner_config.algo.synchronous=true",)


def play(folder: Path, *words: str) -> dict[str, Any]:
    turns = f"{{unroll_length: {STEPS}, whole_replay_buffer_training: true"
    given = (
        f"learner_config.replay.iteration={turns}, clear_replay_buffer: true}}",
        "learner_config.replay.samples_per_insert=0",
        "session_config.stop={iterations: 200, eval_episodes: 2}",
        *("--quiet", "--seed", "5", *words),
    )
    with Train(folder, CARTPOLE, *given) as train:
        assert train.wait(120) == 0, train.words
    assert clean(train.result)
    return train.result


def last_line(folder: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((folder / "progress.jsonl").read_text().splitlines()[-1])
    return line


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), WAITING], ids=["", "synchronous"])
def test_every_transition_is_learned_from_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Two serial runs take the same turns; each trains on all that it collected before."""
    one, other = (play(tmp_path / name, "--on", "serial", *words) for name in ("one", "other"))
    assert one["iterations"] == other["iterations"] == 200
    assert one["experience"] == other["experience"]
    line = last_line(tmp_path / "one")
    assert line["learn"] == last_line(tmp_path / "other")["learn"]
    last = line["plan"]
    assert last["rows_taken"] == last["rows_trained"]
    # A turn has 512 rows, of which some are the last of an episode or wait for their successors.
    assert one["experience"]["sampled"] <= one["experience"]["inserted"]
    assert one["experience"]["sampled"] > 0.8 * one["experience"]["inserted"] - STEPS * STREAMS


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), WAITING], ids=["", "synchronous"])
def test_processes_take_turns(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = play(tmp_path / "run", "--on", "local", *words)
    assert 0 < result["experience"]["sampled"] <= result["experience"]["inserted"]
