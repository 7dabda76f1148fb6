"""Which episodes of an evaluation count, and their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.agent.evaluation import Evaluation
from surreal_like.env.vector import SyncVector
from tests.surreal_like.agent.rig import Count


def play(evaluation: Evaluation, lengths: list[int], ends: str = "TU") -> int:
    """Plays until it is over; stream i has episodes of lengths[i] steps. Gives the steps."""
    envs = [Count(length, ends) for length in lengths]
    vector = SyncVector(envs, obs_spec=Count.obs_spec, action_spec=Count.action_spec)
    vector.reset()
    steps = 0
    while not evaluation.over:
        _, reward, terminated, truncated, info = vector.step(np.zeros(len(lengths), np.int64))
        evaluation.step(reward, terminated, truncated, info)
        steps += 1
    return steps


@pytest.mark.parametrize("ends", ["T", "U", "B", "TU"])
def test_every_stream_plays_its_share_however_long_its_episodes_are(ends: str) -> None:
    evaluation = Evaluation(4, 2)
    play(evaluation, [1, 5], ends)
    lengths = sorted(each["length"] for each in evaluation.finished)
    assert lengths == [1, 1, 5, 5]  # the first four to end would be 1, 1, 1 and 5
    summary = evaluation.summary()
    assert summary["episodes"] == 4
    assert summary["mean_return"] == np.mean([1, 1, 15, 15])
    assert summary["std_return"] == np.std([1, 1, 15, 15])
    assert (summary["min_return"], summary["max_return"]) == (1, 15)
    assert summary["mean_length"] == 3.0


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(n, 20))))
def test_shares_add_up_to_the_episodes(sizes: tuple[int, int]) -> None:
    streams, episodes = sizes
    evaluation = Evaluation(episodes, streams)
    play(evaluation, [1 + i % 3 for i in range(streams)])
    assert len(evaluation.finished) == episodes


def test_raw_rewards_are_counted_where_a_wrapper_changed_them() -> None:
    evaluation = Evaluation(1, 1)
    info: dict[str, Any] = {"raw_reward": np.array([7.0])}
    ended = np.array([True])
    evaluation.step(np.array([1.0]), ended, ~ended, info)
    assert evaluation.summary()["mean_return"] == 7.0


def test_episodes_that_an_error_has_cut_short_are_played_again() -> None:
    evaluation = Evaluation(1, 1)
    ended = np.array([True])
    cut: dict[str, Any] = {"metrics": [{"cut_short": 1}]}
    evaluation.step(np.array([1.0]), ~ended, ended, cut)
    assert not evaluation.over
    evaluation.step(np.array([0.0]), ~ended, ~ended, {})
    evaluation.step(np.array([5.0]), ended, ~ended, {})
    assert evaluation.over
    assert evaluation.summary()["mean_return"] == 5.0


def test_first_and_env_steps_follow_the_episodes() -> None:
    evaluation = Evaluation(2, 1)
    assert evaluation.first.tolist() == [True]
    steps = play(evaluation, [3])
    assert steps == 7  # three steps, a reset, three steps
    assert evaluation.env_steps == 6
