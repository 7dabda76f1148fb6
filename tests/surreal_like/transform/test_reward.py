"""Rewards as they are learned from: one by one, before any sum, whatever the replay."""

from __future__ import annotations

import numpy as np

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
