"""A corridor: the agent starts at its left end, and is rewarded at the right one."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal_like import Env


class Corridor(Env):
    """Walks along ``length`` cells; action 1 is a step to the right, 0 one to the left."""

    def __init__(self, length: int = 8) -> None:
        self.obs_spec = {"type": "float32", "dim": [1]}
        self.action_spec = {"type": "discrete", "dim": [2]}
        self.length = length
        self.cell = 0

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; returns the observation, and info."""
        self.cell = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one step; returns observation, reward, terminated, truncated, info."""
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        done = self.cell == self.length - 1
        # A time limit is a setting: limit_episode_length in experiment.yaml.
        return self._observe(), 1.0 if done else -0.02, done, False, {}

    def _observe(self) -> Any:
        return np.array([self.cell / self.length], np.float32)
