"""Which episodes of an evaluation count, and their sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.agent.evaluation import Evaluation
from surreal_like.env.vector import SyncVector
from surreal_like.env.whole_vector import WholeVector
from tests.surreal_like.agent.rig import Count


def play(evaluation: Evaluation, lengths: list[int], ends: str = "TU") -> int:
    """Plays until it is over; stream i has episodes of lengths[i] steps. Gives the steps."""
    envs = [Count(length, ends) for length in lengths]
    single = SyncVector(envs, obs_spec=Count.obs_spec, action_spec=Count.action_spec)
    vector = WholeVector(single)
    vector.reset()
    steps = 0
    while not evaluation.over:
        before = vector.env_steps
        step = vector.step({"default": np.zeros(len(lengths), np.int64)})
        evaluation.count(step.episodes, vector.env_steps - before)
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


def test_episodes_that_an_error_has_cut_short_are_played_again() -> None:
    evaluation = Evaluation(1, 1)
    evaluation.count([(0, {"return": 1.0, "length": 1, "metrics": {"cut_short": 1.0}})], 1)
    assert not evaluation.over
    evaluation.count([(0, {"return": 5.0, "length": 1, "metrics": {}})], 1)
    assert evaluation.over
    assert evaluation.summary()["mean_return"] == 5.0


def test_env_steps_follow_the_episodes() -> None:
    evaluation = Evaluation(2, 1)
    assert play(evaluation, [3]) == 7  # three steps, a reset, three steps
    assert evaluation.env_steps == 6
