"""Rewards as they are learned from: one by one, before any sum, whatever the replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from session.errors import ConfigError, SurrealError
from surreal_like import train
from surreal_like.replay.kinds import FIFOReplay, UniformReplay
from surreal_like.transform.reward import RewardTransform, make_reward_transform
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

GIVEN = {"reward_clip": 2.0, "reward_scale": 0.5}


def slow(reward: float) -> float:
    return max(-2.0, min(2.0, reward)) * 0.5


def test_clip_then_scale() -> None:
    transform = make_reward_transform(GIVEN)
    rewards = np.array([-5, 0, 1, 5], np.float32)
    np.testing.assert_array_equal(transform(rewards), [slow(x) for x in rewards.tolist()])
    assert transform(rewards).dtype == np.float32
    assert RewardTransform()(rewards) is rewards


def test_rows_are_transformed_before_they_are_summed() -> None:
    replay = UniformReplay(**configs(algo={"gamma": 0.5, "n_step": 3, **GIVEN}, min_size=1))
    replay.insert(chunk_of("FMMM", rewards=[0, 5, -5, 1]))
    expected = slow(5) + 0.5 * slow(-5) + 0.25 * slow(1)
    np.testing.assert_array_equal(replay.aggregate_batch(replay.sample(1))["rewards"], [expected])


def test_unrolls_are_transformed_when_they_are_sampled() -> None:
    session = {"sender": {"flush_iteration": 3}}
    mix = {"batch_size": 4, "replay_proportion": 0.5}
    replay = FIFOReplay(**configs(algo={"gamma": 0.5, **GIVEN}, session=session, **mix))
    for number in (1, 2, 3):
        chunk = chunk_of("FMMT", "FMMM", sequence=number, rewards=[0, 5, -5, 1])
        chunk.overlap = 1
        replay.insert(chunk)
    replay.sample(4)
    batch = replay.aggregate_batch(replay.sample(4))
    # What is stored is left as it came: it is transformed once more when it is replayed.
    assert batch["replayed"].any()
    for stream in range(4):
        np.testing.assert_array_equal(batch["rewards"][:, stream], [slow(5), slow(-5), slow(1)])


OWN = """
import numpy as np
LIST = [1]
def root(rewards): return np.sign(rewards) * np.sqrt(np.abs(rewards))
def mean(rewards): return rewards - rewards.mean()
def total(rewards): return rewards.sum()
def log(rewards):
    with np.errstate(all="ignore"):
        return np.log(rewards)
def two(rewards, other): return rewards
def wrong(rewards): return rewards.misspelt
def own(rewards):
    rewards *= 2
    return rewards
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "rewards.py"
    path.write_text(OWN)
    return str(path)


def test_a_function_comes_last(own: str) -> None:
    transform = make_reward_transform({**GIVEN, "reward_function": f"{own}:root"})
    rewards = np.array([[-5, 0, 1], [5, -0.5, 2]], np.float32)
    found = transform(rewards)
    expected = [[np.sign(slow(x)) * abs(slow(x)) ** 0.5 for x in row] for row in rewards.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32


def test_a_function_that_changes_its_argument_leaves_stored_rewards(own: str) -> None:
    algo = {"gamma": 1.0, "n_step": 1, "reward_function": f"{own}:own"}
    replay = UniformReplay(**configs(algo=algo, min_size=1))
    replay.insert(chunk_of("FM", rewards=[0, 5]))
    for _ in range(2):
        np.testing.assert_array_equal(replay.aggregate_batch(replay.sample(1))["rewards"], [10.0])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mean", "gives a reward another value beside other rewards"),
        ("total", r"of float32 \[64\], gives \[\], expected the same shape"),
        ("log", "gives nan for -20: expected a number"),
        ("two", r"takes other arguments .* expected a function of \(rewards\)"),
        ("wrong", "raises AttributeError: .* has no attribute 'misspelt'"),
        ("rot", "has no 'rot'"),
        ("LIST", "is a list, expected a class or function"),
    ],
)
def test_a_function_that_is_none_is_refused(own: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_reward_transform({"reward_function": f"{own}:{name}"})


@pytest.mark.slow
def test_a_run_that_cannot_use_its_function_does_not_start(own: str, tmp_path: Path) -> None:
    settings = {
        "learner_config.algo.reward_function": f"{own}:mean",
        "session_config.stop.iterations": 1,
    }
    with pytest.raises(SurrealError, match="reward_function"):
        train(
            algorithm="dqn",
            env="toy:chain",
            overrides=settings,
            launcher="serial",
            folder=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()
