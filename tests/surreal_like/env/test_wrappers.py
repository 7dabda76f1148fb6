import math
from typing import Any

import numpy as np
import pytest

from session import nest
from session.errors import ConfigError
from surreal_like.data.timestep import discounts
from surreal_like.env.environment import Wrapper
from surreal_like.env.image_wrappers import Grayscale, Transpose
from surreal_like.env.registry import make_env
from surreal_like.env.toy import Bandit, Chain, Clock, Target
from surreal_like.env.wrappers import (
    ActionRepeat,
    ClipAction,
    FilterObservation,
    FloatObservation,
    LimitEpisodeLength,
    MetricsOfInfo,
    NeverTerminate,
    horizon,
)
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


def test_terminations_become_truncations() -> None:
    env = NeverTerminate(Bandit())
    env.reset()
    assert env.step(0)[2:4] == (False, True)
    late = NeverTerminate(LimitEpisodeLength(Chain(8), 2))
    late.reset()
    assert [late.step(1)[2:4] for _ in range(2)] == [(False, False), (False, True)]


class Informing(Wrapper):
    """Tells in each info how far it is, and what the environment itself reports."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        info = {"far": np.array([obs.argmax()]), "is_success": terminated, "word": "a"}
        return obs, reward, terminated, truncated, {**info, "metrics": {"own": 7.0}}


def informed(*keys: Any, limit: int = 0) -> Any:
    config = {"env_name": "toy:chain", "env_args": {"length": 3}, "metric_keys": list(keys)}
    wrapper = f"{__name__}:Informing"
    env = make_env({**config, "wrappers": [wrapper], "limit_episode_length": limit})
    env.reset()
    return env


def test_numbers_of_the_last_info_are_metrics_of_the_episode() -> None:
    env = informed("far", "is_success")
    assert env.step(1)[4]["metrics"] == {"own": 7.0}
    info = env.step(1)[4]
    assert info["metrics"] == {"own": 7.0, "far": 2.0, "is_success": 1.0}
    assert info["word"] == "a"


def test_an_episode_that_is_cut_off_has_metrics_too() -> None:
    assert informed("is_success", limit=1).step(1)[4]["metrics"]["is_success"] == 0.0


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("is_succes", "no 'is_succes' in info at an episode's end; did you mean is_success"),
        ("word", "'word' in info is 'a', no number"),
        ("metrics", "no number"),
    ],
)
def test_a_metric_that_is_none_is_named(key: str, words: str) -> None:
    env = informed(key, limit=1)
    with pytest.raises(DataError, match=words):
        env.step(0)


def test_names_of_metrics_are_texts() -> None:
    with pytest.raises(ConfigError, match=r"metric_keys is \[3\], expected names"):
        MetricsOfInfo(Chain(), [3])  # type: ignore[list-item]


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


class Camera(Bandit):
    """Gives a colour image, a small one behind two keys, and a number."""

    def __init__(self, image: Any, *, alone: bool = False) -> None:
        super().__init__()
        self.image, self.alone = np.asarray(image), alone
        spec = {"type": self.image.dtype.name, "dim": list(self.image.shape), "low": 0}
        number = {"type": "float32", "dim": [1]}
        self.obs_spec = spec if alone else {"arm": {"eye": spec}, "number": number}

    def reset(self) -> Any:
        return self._look(), {}

    def step(self, action: Any) -> Any:
        return self._look(), 0.0, True, False, {}

    def _look(self) -> Any:
        if self.alone:
            return self.image
        return {"arm": {"eye": self.image}, "number": np.ones(1, np.float32)}


class TestCameraIsAnEnv(EnvContract):
    def make(self) -> Grayscale:
        return Grayscale(Camera(np.zeros((4, 5, 3), np.uint8)))


def test_images_become_gray() -> None:
    image = np.zeros((2, 4, 3), np.uint8)
    image[0, :3] = 100 * np.eye(3, dtype=np.uint8)
    image[1] = 255
    env = Grayscale(Camera(image, alone=True))
    assert env.obs_spec == {"type": "uint8", "dim": [2, 4], "low": 0}
    assert env.reset()[0].tolist() == [[30, 59, 11, 0], [255] * 4]
    in_front = Grayscale(Camera(image.transpose(2, 0, 1), alone=True))
    assert in_front.step(0)[0].tolist() == env.step(0)[0].tolist()
    assert in_front.step(0)[0].dtype == np.uint8


def test_channels_come_in_front() -> None:
    image = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    env = Transpose(Camera(image), keys=["arm/eye"])
    assert env.obs_spec["arm"]["eye"]["dim"] == [3, 2, 4]
    obs = env.step(0)[0]
    assert (obs["arm"]["eye"] == image.transpose(2, 0, 1)).all()
    assert obs["number"].tolist() == [1]


@pytest.mark.parametrize("keys", [["number"], ["nothing"]])
def test_what_is_no_image_is_refused(keys: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"Transpose: {keys[0]} of the observations"):
        Transpose(Camera(np.zeros((2, 4, 3))), keys=keys)
    with pytest.raises(ConfigError, match="Grayscale: no part"):
        Grayscale(Camera(np.zeros((2, 4, 2))))


def test_observations_are_filtered() -> None:
    env = FilterObservation(Camera(np.zeros((2, 4, 3))), ["number"])
    assert env.obs_spec == {"number": {"type": "float32", "dim": [1]}}
    assert set(env.reset()[0]) == set(env.step(0)[0]) == {"number"}


def test_a_filter_names_parts_that_are_there() -> None:
    with pytest.raises(ConfigError, match="the observations have arm, number; did you mean number"):
        FilterObservation(Camera(np.zeros((2, 4, 3))), ["numbr"])


def test_parts_of_an_environment_of_ours_are_chosen_by_a_setting() -> None:
    name = "tests.surreal_like.env.test_wrappers:Camera"
    image = np.zeros((2, 4, 3), np.uint8)
    env = make_env({"env_name": name, "env_args": {"image": image}, "obs_keys": ["number"]})
    assert set(env.reset()[0]) == {"number"}


def test_all_parts_become_floats_as_they_are() -> None:
    env = FloatObservation(Camera(np.full((2, 4, 3), 7)))
    image, number = ({"type": "float32", "dim": dim} for dim in ([2, 4, 3], [1]))
    assert env.obs_spec == {"arm": {"eye": image}, "number": number}
    for obs in (env.reset()[0], env.step(0)[0]):
        leaves = nest.leaves(obs)
        assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
        assert max(leaf.max() for leaf in leaves) == 7.0
