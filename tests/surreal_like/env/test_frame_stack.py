"""The newest frames of each stream at once; against lists of frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session import nest
from session.errors import ConfigError
from surreal_like.env.environment import VectorEnv
from surreal_like.env.frame_stack import FrameStack, stack_frames
from surreal_like.env.registry import derive_specs
from surreal_like.env.vector import make_vector_env
from tests.add_ons import needs
from tests.contracts.env import VectorEnvContract, random_actions
from tests.surreal_like.env.samples import Counter

SAMPLES = "tests.surreal_like.env.samples"


class TestStackedCartPole(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        env = make_vector_env({"env_name": "gym:CartPole-v1"}, num_envs=num_envs, seed=seed)
        return FrameStack(env, 4)


class TestStackedGrid(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        env = make_vector_env({"env_name": "toy:grid"}, num_envs=num_envs, seed=seed)
        return FrameStack(env, 3)


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "toy:grid"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_it_is_the_newest_frames_of_the_episode(name: str, size: int) -> None:
    config = {"env_name": name, "vector": "sync"}
    single, stacked = (make_vector_env(config, num_envs=3, seed=1) for _ in range(2))
    stacked = FrameStack(stacked, size)
    rng = np.random.default_rng(0)
    frame, seen = single.reset()[0], stacked.reset()[0]
    episodes: list[list[Any]] = [[] for _ in range(3)]
    first = ended = np.zeros(3, np.bool_)
    for _ in range(80):
        for stream, frames in enumerate(episodes):
            if first[stream]:
                frames.clear()
            frames.append(nest.map(lambda leaf, n=stream: leaf[n], frame))
            newest = ([frames[0]] * (size - 1) + frames)[-size:]
            expected = nest.leaves(nest.stack(newest))
            for leaf, one in zip(nest.leaves(seen), expected, strict=True):
                np.testing.assert_array_equal(leaf[stream], one)
        actions = random_actions(single.action_spec, (3,), rng)
        frame, _, terminated, truncated, _ = single.step(actions)
        seen = stacked.step(actions)[0]
        first, ended = ended, terminated | truncated


def test_an_env_alone_is_a_vector_of_one_stream() -> None:
    env = FrameStack(Counter(length=2), 3)
    assert env.reset()[0].tolist() == [[[0], [0], [0]]]
    assert env.step(np.array([1]))[0].tolist() == [[[0], [0], [1]]]
    assert env.step(np.array([1]))[0].tolist() == [[[0], [1], [2]]]
    assert env.step(np.array([1]))[0].tolist() == [[[0], [0], [0]]]


def test_a_config_without_stacks_leaves_the_environment_alone() -> None:
    env = make_vector_env({"env_name": "toy:chain"}, num_envs=1, seed=0)
    assert stack_frames(env, {}) is env
    assert stack_frames(env, {"frame_stack": 1}) is env
    assert isinstance(stack_frames(env, {"frame_stack": 2}), FrameStack)
    with pytest.raises(ConfigError, match=r"a stack of 0 frames"):
        FrameStack(env, 0)


@pytest.mark.parametrize(
    "vector", ["native", "sync", pytest.param("process", marks=needs("workers"))]
)
def test_a_resolved_config_builds_the_environment_of_single_frames(vector: str) -> None:
    config: dict[str, Any] = {"env_name": "gym:CartPole-v1", "frame_stack": 4, "vector": vector}
    obs_spec, action_spec = derive_specs(config)
    assert obs_spec["dim"] == [4, 4]
    resolved = {**config, "obs_spec": obs_spec, "action_spec": action_spec}
    assert derive_specs(resolved) == (obs_spec, action_spec)
    env = make_vector_env(resolved, num_envs=2, seed=0)
    assert env.reset()[0].shape == (2, 4)
    seen = stack_frames(env, resolved)
    assert seen.obs_spec == obs_spec
    assert seen.reset()[0].shape == (2, 4, 4)
    seen.close()


def test_an_environment_without_specs_gets_those_of_a_stack() -> None:
    config = {
        "env_name": f"{SAMPLES}:Silent",
        "frame_stack": 3,
        "obs_spec": {"type": "float32", "dim": [3, 2], "low": -1.0},
        "action_spec": {"type": "discrete", "dim": [2]},
    }
    env = make_vector_env(config, num_envs=1, seed=0)
    assert env.obs_spec == {"type": "float32", "dim": [2], "low": -1.0}
    assert stack_frames(env, config).obs_spec == config["obs_spec"]
