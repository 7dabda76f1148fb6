import math
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.data.timestep import discounts
from surreal_like.env.base import Wrapper
from surreal_like.env.toy import Bandit, Chain, Clock, Target
from surreal_like.env.wrappers import ActionRepeat, ClipAction, LimitEpisodeLength, horizon
from surreal_like.errors import DataError
from tests.contracts.env import EnvContract


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, None), (0, None), (-5, None), (-0.5, None), (math.inf, None), (7, 7), (30000.0, 30000)],
)
def test_the_forms_of_a_horizon(limit: Any, expected: int | None) -> None:
    assert horizon(limit) == expected
    assert isinstance(horizon(30000.0), int)


@pytest.mark.parametrize("limit", [2.5, 0.5, math.nan, True, "7", [7]])
def test_what_is_no_horizon(limit: Any) -> None:
    with pytest.raises(ConfigError, match=r"limit_episode_length is .*whole number"):
        horizon(limit)


def test_a_horizon_is_a_truncation() -> None:
    env = LimitEpisodeLength(Chain(8), 3)
    for _ in range(2):  # the count starts anew with each episode
        env.reset()
        flags = [env.step(1)[2:4] for _ in range(3)]
        assert flags == [(False, False), (False, False), (False, True)]


def test_a_termination_at_the_horizon_stays_a_termination() -> None:
    env = LimitEpisodeLength(Bandit(), 1)
    env.reset()
    _, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (True, True)
    assert discounts(np.array([terminated])).tolist() == [0]


def test_a_time_limit_of_the_environment_below_the_horizon_counts() -> None:
    env = LimitEpisodeLength(Clock(limit=2), 5)
    env.reset()
    assert [env.step(0)[3] for _ in range(2)] == [False, True]


class Doubled(Wrapper):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, 2 * reward, terminated, truncated, {**info, "raw_reward": reward}


def test_action_repeat_sums_rewards_and_stops_at_the_end() -> None:
    env = ActionRepeat(Chain(length=6, cost=0.25), 3)
    env.reset()
    obs, reward, terminated, _, info = env.step(1)
    assert (int(obs.argmax()), reward, terminated, info) == (3, -0.75, False, {})
    obs, reward, terminated, _, _ = env.step(1)
    assert (int(obs.argmax()), reward, terminated) == (5, 0.5, True)


def test_action_repeat_sums_raw_rewards_too() -> None:
    env = ActionRepeat(Doubled(Chain(length=6, cost=0.25)), 2)
    env.reset()
    _, reward, _, _, info = env.step(1)
    assert (reward, info["raw_reward"]) == (-1.0, -0.5)


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True])
def test_what_is_no_repeat(repeat: Any) -> None:
    with pytest.raises(ConfigError, match="action_repeat"):
        ActionRepeat(Chain(), repeat)


def test_actions_are_clipped_or_refused() -> None:
    env = ClipAction(Target(size=2))
    point, _ = env.reset()
    _, reward, _, _, _ = env.step([50.0, -50.0])
    expected = -np.mean(np.square(np.array([2.0, -2.0]) - point))
    assert reward == pytest.approx(expected, rel=1e-5)
    with pytest.raises(DataError, match="NaN"):
        env.step([np.nan, 0.0])
    strict = ClipAction(Target(size=2), clip=False)
    strict.reset()
    with pytest.raises(DataError, match=r"action: 50\.0"):
        strict.step([50.0, 0.0])


class TestLimitEpisodeLength(EnvContract):
    def make(self) -> LimitEpisodeLength:
        return LimitEpisodeLength(Chain(), 5)


class TestClipAction(EnvContract):
    def make(self) -> ClipAction:
        return ClipAction(Target())
