"""A VectorEnv as the rows of one policy: beginnings, ends and episodes of its streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.env.environment import VectorEnv
from surreal_like.env.whole_vector import WholeVector

NO = np.zeros(2, np.bool_)


class Results(VectorEnv):
    """Gives the results that it is told, of two streams."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012
    num_envs = 2

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.actions: list[Any] = []

    def reset(self) -> Any:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        self.actions.append(actions)
        reward, terminated, truncated, info = self.results.pop(0)
        obs = np.full((2, 1), len(self.actions), np.float32)
        flags = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return obs, np.array(reward, np.float32), *flags, info


def step(vector: WholeVector) -> tuple[Any, Any]:
    made = vector.step({"default": np.zeros(2, np.int64)})
    [rows] = made.rows.values()
    return rows, made.episodes


def test_rows_are_all_streams_in_order() -> None:
    env = Results(([1, 2], [1, 0], [0, 0], {}), ([0, 3], [0, 0], [0, 1], {}), ([4, 0], NO, NO, {}))
    vector = WholeVector(env)
    assert (vector.num_envs, vector.num_streams) == (2, {"default": 2})
    [rows] = vector.reset().rows.values()
    assert rows.streams.tolist() == [0, 1]
    assert (rows.first.tolist(), rows.steps.tolist()) == ([True, True], [0, 0])
    assert (rows.reward.tolist(), vector.env_steps) == ([0, 0], 0)
    rows, episodes = step(vector)
    assert (rows.first.tolist(), rows.steps.tolist()) == ([False, False], [1, 1])
    assert (rows.terminated.tolist(), rows.truncated.tolist()) == ([True, False], [False, False])
    assert episodes == [(0, {"return": 1.0, "length": 1, "metrics": {}})]
    rows, episodes = step(vector)
    assert (rows.first.tolist(), rows.steps.tolist()) == ([True, False], [0, 1])
    assert episodes == [(1, {"return": 5.0, "length": 2, "metrics": {}})]
    rows, episodes = step(vector)
    assert (rows.first.tolist(), vector.env_steps, episodes) == ([False, True], 4, [])
    # Open episodes are discarded.
    assert all(rows.first.all() for rows in vector.reset().rows.values())
    env.results = [([7, 0], [1, 0], [0, 0], {})]
    assert step(vector)[1] == [(0, {"return": 7.0, "length": 1, "metrics": {}})]


def test_an_episode_that_ends_within_the_step_has_begun_the_next_one() -> None:
    info = {"final_obs": np.zeros((1, 1), np.float32), "final_info": {}}
    vector = WholeVector(Results(([1, 2], [1, 0], [0, 0], info), ([3, 3], NO, NO, {})))
    vector.reset()
    rows, episodes = step(vector)
    assert (rows.first.tolist(), episodes[0][1]["return"]) == ([True, False], 1.0)
    rows, _ = step(vector)
    assert (rows.first.tolist(), vector.env_steps) == ([False, False], 4)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"raw_reward": np.array([7.0, 1.0])}, [(0, 7.0, {})]),
        ({"metrics": [{"mine": 3}, None]}, [(0, 1.0, {"mine": 3.0})]),
        # A game goes on after a life of it.
        ({"life_lost": np.array([True, False])}, []),
    ],
)
def test_episodes_are_counted_by_what_the_environment_tells(info: Any, expected: Any) -> None:
    vector = WholeVector(Results(([1, 1], [1, 0], [0, 0], info)))
    vector.reset()
    _, episodes = step(vector)
    assert [(at, each["return"], each["metrics"]) for at, each in episodes] == expected
