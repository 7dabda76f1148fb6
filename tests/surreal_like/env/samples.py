"""Environments that tests name by dotted path: good ones, and some that break the rules."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from surreal_like.env.base import Env, Step, Wrapper
from surreal_like.env.toy import Bandit, Chain


class Counter(Env):
    """Counts its steps in the observation, the reward, info and metrics; ends after `length`."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [3]}  # noqa: RUF012

    def __init__(self, length: int = 4, *, fails_at: int = 0, does: str = "raise") -> None:
        self.length, self.fails_at, self.does = length, fails_at, does
        self._steps = 0

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return np.zeros(1, np.float32), {"count": 0}

    def step(self, action: int) -> Step:
        self._steps += 1
        if self._steps == self.fails_at:
            if self.does == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.does == "hang":
                time.sleep(600)
            raise ValueError("the arm is stuck")
        last = self._steps == self.length
        info: dict[str, Any] = {"count": self._steps}
        if last:
            info["metrics"] = {"my/steps": self._steps}
        return np.array([self._steps], np.float32), float(self._steps), last, False, info

    def close(self) -> None:
        self.closed = True


class Scaled(Wrapper):
    """Multiplies rewards."""

    def __init__(self, env: Env, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        raw = info.get("raw_reward", reward)
        return obs, self.factor * reward, terminated, truncated, {**info, "raw_reward": raw}


class Silent(Env):
    """Does not tell its specs."""

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Step:
        return np.zeros(2, np.float32), 0.0, True, False, {}


class Scripted(Counter):
    """Gives `result` instead of what `step` or `reset` should give."""

    def __init__(self, result: Any, *, at_reset: bool = False) -> None:
        super().__init__()
        self.result, self.at_reset = result, at_reset

    def reset(self) -> Any:
        return self.result if self.at_reset else super().reset()

    def step(self, action: int) -> Any:
        return self.result


def build_chain(length: int = 5) -> Env:
    """A function that builds an Env."""
    return Chain(length)


def build_text() -> str:
    """A function that builds no environment."""
    return "text"


class Broken(Bandit):
    """Its constructor fails."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        if kind == "data":
            from surreal_like.errors import DataError

            raise DataError("calibration: NaN")
        raise OSError("no robot at port 7")
