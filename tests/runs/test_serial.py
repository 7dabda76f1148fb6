"""One seed, one run: in the serial launcher two runs do the same, to the last bit."""

import hashlib
from pathlib import Path

import pytest

from tests.runs.command import CARTPOLE, Train, clean, without_real_times

# Past the first updates and evaluations, and still short.
SHORT = ("session_config.stop={env_steps: 6000, eval_episodes: 10}",)


def run(folder: Path, seed: int, *words: str) -> Train:
    with Train(folder, CARTPOLE, "--on", "serial", "--quiet", "--seed", str(seed), *words) as train:
        assert train.wait(600) == 0, train.words
    assert train.result["status"] == "stopped"
    assert clean(train.result)
    return train


def digest(train: Train) -> str:
    """Of the parameters in the final checkpoint."""
    folders = (train.folder.checkpoints / "learner").glob("[0-9]*")
    newest = max(folders, key=lambda folder: int(folder.name))
    return hashlib.sha256((newest / "params.safetensors").read_bytes()).hexdigest()


def same(first: Train, second: Train) -> bool:
    progress = [without_real_times(train.progress) for train in (first, second)]
    result = [without_real_times(train.result) for train in (first, second)]
    return digest(first) == digest(second) and progress[0] == progress[1] and result[0] == result[1]


@pytest.mark.slow
def test_the_first_updates_are_the_same(tmp_path: Path) -> None:
    words = (
        "session_config.stop={env_steps: 1500, eval_episodes: 5}",
        "learner_config.replay.min_size=300",
    )
    first, second = (run(tmp_path / name, 2, *words) for name in "ab")
    assert first.result["iterations"] > 50
    assert same(first, second)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_seed_gives_one_run_and_another_seed_another(tmp_path: Path) -> None:
    first, second, other = (
        run(tmp_path / name, seed, *SHORT) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first.line["iterations"] > 500
    assert first.line["eval"] is not None
    assert same(first, second)
    assert digest(other) != digest(first)
    assert without_real_times(other.progress) != without_real_times(first.progress)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_runs_to_the_goal_are_the_same(tmp_path: Path) -> None:
    goal = "session_config.stop.eval_return=195"
    first, second = (run(tmp_path / name, 1, goal) for name in "ab")
    assert first.result["goal_met"] is True
    assert same(first, second)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_agents_and_shards_do_not_race(tmp_path: Path) -> None:
    words = (*SHORT, "--agents", "3", "--evals", "2", "learner_config.replay.replay_shards=2")
    first, second = (run(tmp_path / name, 5, *words) for name in "ab")
    assert same(first, second)
