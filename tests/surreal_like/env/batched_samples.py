"""One environment in every form in which it can be given: single, and batched in three modes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from surreal_like.env.environment import Env, VectorEnv

# Steps after which an episode is cut off; the action 2 terminates it.
LIMIT = 4


def outcome(steps: Any, actions: Any) -> tuple[Any, Any, Any]:
    """Reward and flags of the step number `steps` of an episode."""
    return 0.5 * steps + actions, actions == 2, (steps >= LIMIT) & (actions != 2)


class Ones(Env):
    """Observes the number of the episode and of the step; also `info["clock"]`."""

    obs_spec = {"type": "float32", "dim": [2]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [3]}  # noqa: RUF012
    episode = -1

    def reset(self) -> Any:
        self.episode, self.steps = self.episode + 1, 0
        return self.look(), {"clock": 0.0}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward, terminated, truncated = outcome(self.steps, action)
        return self.look(), reward, terminated, truncated, {"clock": 10.0 * self.steps}

    def look(self) -> Any:
        return np.array([self.episode, self.steps], np.float32)


class GymOnes(gymnasium.Env[Any, Any]):
    """The same as an environment of Gymnasium."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.one = Ones()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.one.reset()

    def step(self, action: Any) -> Any:
        return self.one.step(action)


def sync(num_envs: int, mode: str = "NextStep") -> SyncVectorEnv:
    """Gymnasium's own batch of single environments."""
    return SyncVectorEnv([GymOnes] * num_envs, autoreset_mode=AutoresetMode(mode))


class Many(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """The same in arrays, which it overwrites; `kind` may be `torch` for tensors."""

    def __init__(self, num_envs: int, mode: str = "NextStep", kind: str = "numpy") -> None:
        self.num_envs, self.mode, self.kind = num_envs, AutoresetMode(mode), kind
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space = spaces.Box(-1.0, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state = np.full((num_envs, 2), -1.0, np.float32)
        self.over = np.zeros(num_envs, np.bool_)

    def begin(self, where: Any) -> None:
        self.state[where] = np.stack([self.state[where, 0] + 1, 0 * self.state[where, 1]], 1)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        where = (options or {}).pop("reset_mask", np.ones(self.num_envs, np.bool_))
        self.begin(where)
        self.over[where] = False
        return self.give(self.state), {"clock": self.give(10.0 * self.state[:, 1])}

    def step(self, actions: Any) -> Any:
        again, info = self.over.copy(), {}
        self.state[:, 1] += 1
        reward, terminated, truncated = outcome(self.state[:, 1], actions)
        self.begin(again)
        terminated, truncated = terminated & ~again, truncated & ~again
        self.over = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP:
            info["final_obs"] = self.give(self.state.copy())
            info["final_info"] = {"clock": self.give(10.0 * self.state[:, 1])}
            self.begin(self.over)
            self.over = self.over & False
        info["clock"] = self.give(10.0 * self.state[:, 1])
        flags = self.give(terminated), self.give(truncated)
        return self.give(self.state), self.give(reward), *flags, info

    def give(self, array: Any) -> Any:
        if self.kind == "numpy":
            return array
        import torch

        return torch.from_numpy(array).requires_grad_(array.dtype == np.float32)


class Own(VectorEnv):
    """The same as a VectorEnv of ours."""

    obs_spec, action_spec = Ones.obs_spec, Ones.action_spec

    def __init__(self, num_envs: int, resets_in_step: bool = False) -> None:
        self.num_envs, self.resets_in_step = num_envs, resets_in_step
        self.many = Many(num_envs, "SameStep" if resets_in_step else "NextStep")

    def reset(self) -> Any:
        return self.many.reset()

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = self.many.step(actions)
        last = terminated | truncated
        if self.resets_in_step and last.any():
            info["final_obs"] = info["final_obs"][last]
            info["final_info"]["clock"] = info["final_info"]["clock"][last]
        return obs, reward, terminated, truncated, info


class Fixed(Many):
    """A batch of three, whose constructor takes no number."""

    def __init__(self) -> None:
        super().__init__(3)


def make_many(num_envs: int) -> Many:
    """A function that gives a batch."""
    return Many(num_envs)


class Short(Many):
    """A batch that takes the horizon, and draws."""

    def __init__(self, num_envs: int, max_episode_steps: int = 4) -> None:
        super().__init__(num_envs)
        self.limit = max_episode_steps

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        truncated |= self.state[:, 1] >= self.limit
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        return tuple(np.full((8, 8, 3), 20 * step, np.uint8) for step in self.state[:, 1])
