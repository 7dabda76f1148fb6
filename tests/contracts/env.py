"""The contracts of environments: inherit one, say how yours is made, and pytest proves it.

```
from tests.contracts.env import EnvContract

class TestMyEnv(EnvContract):
    def make(self):
        return MyEnv()
```
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from session import nest
from surreal_like.data.spec import parse_action_spec, parse_obs_spec
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.errors import DataError


def random_actions(
    action_spec: Any, leading: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Valid actions [*leading, *dim], uniform inside the bounds (or inside -1 and 1)."""
    spec = parse_action_spec(action_spec)
    shape = (*leading, *spec.array.dim)
    if spec.array.num is not None:
        return np.asarray(rng.integers(0, spec.array.num, shape), np.int64)
    low = np.full(spec.array.dim, -1.0) if spec.array.low is None else spec.array.low
    high = np.full(spec.array.dim, 1.0) if spec.array.high is None else spec.array.high
    finite = rng.uniform(np.maximum(low, -10.0), np.minimum(high, 10.0), shape)
    return np.asarray(finite, np.float32)


def validate(obs_spec: Any, obs: nest.Nest, leading: tuple[int, ...]) -> None:
    """Fails unless an observation has exactly the parts, shapes and dtypes of its spec."""
    specs = nest.flatten(parse_obs_spec(obs_spec), "obs")
    leaves = nest.flatten(obs, "obs")
    assert leaves.keys() == specs.keys()
    for path, spec in specs.items():
        leaf = np.asarray(leaves[path])
        spec.validate(path, leaf)
        assert leaf.shape[: len(leading)] == leading
        assert leaf.ndim == len(leading) + len(spec.dim)


def same(left: nest.Nest, right: nest.Nest) -> bool:
    """Whether two nests are equal, number for number."""
    pairs = zip(nest.leaves(left), nest.leaves(right), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


class EnvContract(ABC):
    """What every Env keeps; `steps` random actions should see the end of an episode."""

    steps = 300

    @abstractmethod
    def make(self) -> Env:
        """Builds the environment."""

    @pytest.fixture
    def env(self) -> Iterator[Env]:
        with contextlib.closing(self.make()) as env:
            yield env

    def play(self, env: Env, seed: int) -> list[tuple[Any, ...]]:
        """One run of random actions: (observation, reward, terminated, truncated) of each step."""
        rng = np.random.default_rng(seed)
        env.seed(seed)
        rows: list[tuple[Any, ...]] = [(env.reset()[0], 0.0, False, False)]
        for _ in range(self.steps):
            if rows[-1][2] or rows[-1][3]:
                rows.append((env.reset()[0], 0.0, False, False))
            action = random_actions(env.action_spec, (), rng)
            rows.append(env.step(action if action.ndim else action.item())[:4])
        return rows

    def test_reset_gives_an_observation_of_its_spec_and_a_dict(self, env: Env) -> None:
        obs, info = env.reset()
        validate(env.obs_spec, obs, ())
        assert isinstance(info, dict)

    def test_step_gives_five_values_of_their_kinds(self, env: Env) -> None:
        env.reset()
        action = random_actions(env.action_spec, (), np.random.default_rng(0))
        obs, reward, terminated, truncated, info = env.step(
            action if action.ndim else action.item()
        )
        validate(env.obs_spec, obs, ())
        assert np.isfinite(float(reward))
        assert bool(terminated) in (True, False)
        assert bool(truncated) in (True, False)
        assert isinstance(info, dict)

    def test_observations_keep_to_their_spec_and_episodes_end(self, env: Env) -> None:
        rows = self.play(env, 1)
        for row in rows:
            validate(env.obs_spec, row[0], ())
        assert any(row[2] or row[3] for row in rows), "no episode ended: raise `steps`"

    def test_equal_seeds_give_equal_runs(self, env: Env) -> None:
        first = self.play(env, 5)
        with contextlib.closing(self.make()) as other:
            for mine, theirs in zip(first, self.play(other, 5), strict=True):
                assert same(mine[0], theirs[0])
                assert mine[1:] == theirs[1:]

    def test_an_observation_is_not_overwritten_later(self, env: Env) -> None:
        obs, _ = env.reset()
        kept = nest.map(np.array, obs)
        self.play(env, 2)
        assert same(obs, kept)

    def test_close_may_be_called_twice(self) -> None:
        env = self.make()
        env.reset()
        env.close()
        env.close()

    def test_it_has_no_spaces_as_attributes(self, env: Env) -> None:
        assert not hasattr(env, "action_space")
        assert not hasattr(env, "obs_space")


class VectorEnvContract(ABC):
    """What every VectorEnv keeps; `steps` random vector steps should see ends in some stream."""

    steps = 300
    num_envs = 3

    @abstractmethod
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        """Builds the environment."""

    @pytest.fixture
    def env(self) -> Iterator[VectorEnv]:
        with contextlib.closing(self.make(self.num_envs, 7)) as env:
            yield env

    def play(self, env: VectorEnv, seed: int = 0) -> list[tuple[Any, ...]]:
        """Rows (observation, reward, terminated, truncated) of random actions."""
        rng = np.random.default_rng(seed)
        none = np.zeros(env.num_envs, np.bool_)
        rows: list[tuple[Any, ...]] = [(env.reset()[0], np.zeros(env.num_envs), none, none)]
        for _ in range(self.steps):
            actions = random_actions(env.action_spec, (env.num_envs,), rng)
            rows.append(env.step(actions)[:4])
        return rows

    def test_leaves_have_the_streams_in_front(self, env: VectorEnv) -> None:
        leading = (env.num_envs,)
        assert leading == (self.num_envs,)
        for obs, reward, terminated, truncated in self.play(env)[1:]:
            validate(env.obs_spec, obs, leading)
            assert (reward.dtype, reward.shape) == (np.dtype(np.float32), leading)
            assert (terminated.dtype, terminated.shape) == (np.dtype(np.bool_), leading)
            assert (truncated.dtype, truncated.shape) == (np.dtype(np.bool_), leading)

    def test_the_step_after_an_end_is_a_reset(self, env: VectorEnv) -> None:
        rows = self.play(env)
        ends = 0
        for (_, _, terminated, truncated), after in itertools.pairwise(rows):
            ended = terminated | truncated
            ends += int(ended.sum())
            assert not after[1][ended].any(), "reward at the first step of an episode"
            assert not (after[2] | after[3])[ended].any(), "a reset ended the episode"
        assert ends, "no episode ended: raise `steps`"

    def test_the_action_after_an_end_is_ignored(self, env: VectorEnv) -> None:
        rng = np.random.default_rng(3)
        continuous = parse_action_spec(env.action_spec).type == "continuous"
        ended = np.zeros(env.num_envs, np.bool_)
        seen = 0
        env.reset()
        for _ in range(self.steps):
            actions = random_actions(env.action_spec, (env.num_envs,), rng)
            actions[ended] = np.nan if continuous else -1
            seen += int(ended.sum())
            _, _, terminated, truncated, _ = env.step(actions)
            ended = terminated | truncated
        assert seen

    def test_a_wrong_action_names_its_stream(self, env: VectorEnv) -> None:
        env.reset()
        actions = random_actions(env.action_spec, (env.num_envs,), np.random.default_rng(0))
        actions[1] = np.nan if actions.dtype.kind == "f" else -1
        with pytest.raises(DataError, match=r"action: .* in stream 1"):
            env.step(actions)

    def test_actions_of_the_wrong_number_are_refused(self, env: VectorEnv) -> None:
        env.reset()
        actions = random_actions(env.action_spec, (env.num_envs + 1,), np.random.default_rng(0))
        with pytest.raises(DataError, match="action: shape"):
            env.step(actions)

    def test_equal_seeds_give_equal_runs(self) -> None:
        runs = []
        for _ in range(2):
            with contextlib.closing(self.make(self.num_envs, 7)) as env:
                runs.append(self.play(env))
        for mine, theirs in zip(*runs, strict=True):
            assert same(mine, theirs)

    def test_what_was_returned_is_not_overwritten_later(self, env: VectorEnv) -> None:
        env.reset()
        actions = random_actions(env.action_spec, (env.num_envs,), np.random.default_rng(0))
        result = env.step(actions)[:4]
        kept = nest.map(np.array, result)
        self.play(env)
        assert same(result, kept)

    def test_reset_in_the_middle_starts_every_stream(self, env: VectorEnv) -> None:
        env.reset()
        rng = np.random.default_rng(0)
        for _ in range(3):
            env.step(random_actions(env.action_spec, (env.num_envs,), rng))
        obs, _ = env.reset()
        validate(env.obs_spec, obs, (env.num_envs,))

    def test_close_may_be_called_twice(self) -> None:
        env = self.make(1, 0)
        env.reset()
        env.close()
        env.close()
