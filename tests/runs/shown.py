"""One thing to know, shown in every way there is, and done in every way."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 36
STEPS = 4
SHOWN: dict[str, spaces.Space[Any]] = {
    "number": spaces.Discrete(4, start=3),
    "numbers": spaces.MultiDiscrete([2, 2]),
    "bits": spaces.MultiBinary(2),
    "far": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "image": spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), np.float64))),
    "dict": spaces.Dict(
        {
            "noise": spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
            "pair": spaces.Tuple((spaces.MultiBinary(1), spaces.Discrete(2))),
        }
    ),
}
DONE: dict[str, spaces.Space[Any]] = {
    "one": spaces.Discrete(4, start=-1),
    "several": spaces.MultiDiscrete([2, 2]),
    "bits": spaces.MultiBinary(2),
    "box": spaces.Box(-2.0, 2.0, (2,), np.float32),
}


class Shown(gymnasium.Env[Any, Any]):
    """Each step shows two bits anew; what is done in answer pays 1 if both are right.

    Continuous actions are right where their signs are: each pays minus its squared distance from
    +-1, so that the best of an episode is 0; else it is ``STEPS``.
    """

    def __init__(self, shown: str = "number", done: str = "one") -> None:
        self.observation_space, self.action_space = SHOWN[shown], DONE[done]
        self._shown, self._done = shown, done
        self._bits = np.zeros(2, np.int64)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        reward = self._paid(action)
        self._steps += 1
        return self._show(), reward, self._steps == STEPS, False, {}

    def _paid(self, action: Any) -> float:
        if self._done == "box":
            return -float(np.square(action - (2.0 * self._bits - 1.0)).mean())
        if self._done == "one":
            return float(action + 1 == 2 * self._bits[0] + self._bits[1])
        return float((np.asarray(action) == self._bits).all())

    def _show(self) -> Any:
        self._bits = first, second = self.np_random.integers(0, 2, 2)
        match self._shown:
            case "number":
                return 3 + 2 * first + second
            case "numbers" | "bits":
                return np.array([first, second], self.observation_space.dtype)
            case "far":
                return np.array([3000 + first, 20 * second - 500], np.float32)
            case "image":
                image = np.zeros((SIDE, SIDE, 1), np.uint8)
                image[18 * first :][:18, 18 * second :][:, :18] = 255
                return image
            case "tuple":
                return first, np.array([2.0 * second - 1.0])
        noise = self.np_random.standard_normal((2, 2)).astype(np.float32)
        return {"noise": noise, "pair": (np.array([first], np.int8), second)}
