import copy
from typing import Any

import numpy as np
import pytest

import surreal_like.env
from surreal_like.env import GymAdapter, VectorWrapper, Wrapper, as_vector
from surreal_like.env.toy import Bandit


class Tagged(Bandit):
    metadata = {"tag": "bandit", "shared": 1}  # noqa: RUF012


class Further(Tagged):
    metadata = {"shared": 2}  # noqa: RUF012


class Loud(Wrapper):
    metadata = {"loud": True, "tag": "loud"}  # noqa: RUF012

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, 10 * reward, terminated, truncated, {**info, "raw_reward": reward}


def test_a_wrapper_passes_on_what_it_does_not_change() -> None:
    env = Loud(Wrapper(Further()))
    assert env.metadata == {"tag": "loud", "shared": 2, "loud": True}
    assert (env.obs_spec, env.action_spec) == (env.unwrapped.obs_spec, env.unwrapped.action_spec)
    assert env.arms == 4
    assert isinstance(env.unwrapped, Further)
    with pytest.raises(AttributeError, match="no_such"):
        _ = env.no_such
    env.seed(3)
    assert env.rng is env.unwrapped.rng
    obs, _ = env.reset()
    assert env.step(int(obs.argmax()))[1] == 10.0
    assert env.render() is None
    assert copy.copy(env).arms == 4


def test_randomness_comes_from_the_seed() -> None:
    env = Bandit(arms=50)
    draws = []
    for seed in (1, 1, 2):
        env.seed(seed)
        draws.append([int(env.reset()[0].argmax()) for _ in range(10)])
    assert draws[0] == draws[1] != draws[2]
    assert Bandit().rng is not Bandit().rng


def test_a_vector_wrapper_passes_everything_on() -> None:
    inner = as_vector(Further())
    env = VectorWrapper(inner)
    assert (env.num_envs, env.obs_spec, env.action_spec) == (1, inner.obs_spec, inner.action_spec)
    assert env.metadata == {"tag": "bandit", "shared": 2}
    assert env.reset()[0].shape == (1, 4)
    assert env.step(np.array([0]))[2].tolist() == [True]
    assert env.render() is None
    env.close()


def test_public_names_are_found_in_the_package() -> None:
    assert surreal_like.env.GymAdapter is GymAdapter
    with pytest.raises(AttributeError, match="no attribute 'GymAdaptor'"):
        _ = getattr(surreal_like.env, "GymAdaptor")  # noqa: B009  (a type checker finds it)
