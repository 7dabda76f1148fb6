"""An environment of images in which one frame tells nothing of what is to be known."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal_like.env.environment import Env, Step


class Motion(Env):
    """A dot goes round a strip of pixels; which way it goes is to be said at each step.

    The optimum with stacks of frames is `length` - 0.5 (the first step is a guess), the best
    without is half of `length`.
    """

    obs_spec = {"type": "uint8", "dim": [1, 5]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def __init__(self, length: int = 6) -> None:
        self.length = length

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._at, self._way, self._steps = int(self.rng.integers(5)), int(self.rng.integers(2)), 0
        return self._look(), {}

    def step(self, action: int) -> Step:
        reward = float(action == self._way)
        self._at += 2 * self._way - 1
        self._steps += 1
        return self._look(), reward, False, self._steps == self.length, {}

    def _look(self) -> Any:
        image = np.zeros((1, 5), np.uint8)
        image[0, self._at % 5] = 255
        return image
