"""Environments with tasks that tests name by dotted path."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from surreal_like.env.environment import Env, Step, Wrapper


class Tasked(Env):
    """Shows its step and the setting `length` of its task, after which episodes end."""

    obs_spec = {"type": "float32", "dim": [2]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._length, self._steps = int(self.task.get("length", 1)), 0
        return self._look(), {}

    def step(self, action: int) -> Step:
        self._steps += 1
        return self._look(), float(action), self._steps >= self._length, False, {}

    def _look(self) -> Any:
        return np.array([self._steps, self._length], np.float32)


class Passing(Wrapper):
    """Shows the version that it sees at a reset in its info."""

    def reset(self) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset()
        assert self.task == self.unwrapped.task
        assert self.progress is self.unwrapped.progress
        return obs, {**info, "version": self.progress.version}


class Own(Tasked):
    """Has a progress of its own."""

    def __init__(self) -> None:
        self.progress: Any = 0.5


class GymTasked(gymnasium.Env[Any, Any]):
    """Ends after one step; its info has the option `length` of the reset, -1 without options."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {"length": -1 if options is None else options["length"]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return 1, 0.0, True, False, {}


class TaskedMany(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """The same as Tasked for N copies, which their caller resets with a mask."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    single_observation_space = spaces.Box(0.0, 9.0, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, needs_task: bool = False) -> None:
        self.num_envs, self.needs_task = num_envs, needs_task
        self.state = np.zeros((num_envs, 2), np.float32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        given = dict(options or {})
        mask = given.pop("reset_mask", np.ones(self.num_envs, np.bool_))
        assert "length" in given or not self.needs_task
        self.state[mask] = 0, given.pop("length", 1)
        assert not given
        return self.state, {}

    def step(self, actions: Any) -> Any:
        self.state[:, 0] += 1
        last = self.state[:, 0] >= self.state[:, 1]
        return self.state, actions.astype(np.float32), last, np.zeros_like(last), {}


class Crashing(Tasked):
    """Raises an error at the steps and resets that are listed, counted over all copies."""

    def __init__(self, at: tuple[int, ...] = (), counts: str = "step") -> None:
        self.at, self.counts = tuple(at), counts
        self.closed = False

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self.seeded = seed

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._count("reset")
        return super().reset()

    def step(self, action: int) -> Step:
        self._count("step")
        return super().step(action)

    def close(self) -> None:
        self.closed = True

    def _count(self, what: str) -> None:
        if what == self.counts:
            COUNTED.append(what)
            if len(COUNTED) in self.at:
                raise ValueError("the simulator crashed")


# Calls of all copies of Crashing in this process; tests clear it.
COUNTED: list[str] = []
