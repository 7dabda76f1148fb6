"""Environments that tests name by dotted path: good ones, and some that break the rules."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from session.errors import ConfigError, RunError
from surreal_like.env.environment import Env, Step, VectorEnv, Wrapper
from surreal_like.env.toy import Bandit, Chain
from surreal_like.env.vector import as_vector
from tests.drawing import draw
from tests.polling import until


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


class Drawing(Counter):
    """Draws its observations from the global generators, not from `rng`."""

    obs_spec = {"type": "float32", "dim": [2]}  # noqa: RUF012

    def reset(self) -> tuple[Any, dict[str, Any]]:
        _, info = super().reset()
        return self._draw(), info

    def step(self, action: int) -> Step:
        _, _, last, truncated, info = super().step(action)
        obs = self._draw()
        return obs, float(obs.sum()), last, truncated, info

    @staticmethod
    def _draw() -> Any:
        return np.array(draw(), np.float32)


def build_chain(length: int = 5) -> Env:
    """A function that builds an Env."""
    return Chain(length)


def build_streams() -> VectorEnv:
    """A function that builds N environments in one."""
    return as_vector(Chain())


def build_text() -> str:
    """A function that builds no environment."""
    return "text"


class Gated(Env):
    """Counts steps up to five in its observation. The constructor waits for a file, its gate."""

    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def __init__(self, gate: str = "", fails: str = "") -> None:
        if gate:
            until(Path(gate).exists, seconds=30.0)
        if fails and Path(fails).exists():
            raise ConfigError("no such arm")
        self.count = 0

    def reset(self) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {"seed": self.rng.integers(1 << 30)}

    def step(self, action: Any) -> Step:
        self.count += 1
        over = self.count == 5
        return np.array([self.count], np.float32), 1.0, over, False, {"seed": 0}


_ERRORS = {
    kind.__name__: kind
    for kind in (TypeError, ImportError, SystemExit, MemoryError, ConnectionError, RunError)
}


class Broken(Bandit):
    """Its constructor fails."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        if kind == "data":
            from surreal_like.errors import DataError

            raise DataError("calibration: NaN")
        if kind != "plain":
            raise _ERRORS[kind]("wrong")
        raise OSError("no robot at port 7")


class Spoiled(Counter):
    """Does one thing wrong, named by `what`, from its third step on."""

    obs_spec = {  # noqa: RUF012
        "temps": {"type": "float32", "dim": [3], "low": 0.0, "high": 1.0},
        "door": {"type": "int8", "dim": []},
    }
    total = [0]  # noqa: RUF012

    def __init__(self, what: str = "") -> None:
        super().__init__(length=6)
        self.what = what
        if what == "constructor":
            raise ValueError("no licence")

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self.total[0] = 0

    def reset(self) -> Any:
        super().reset()
        return self._look() if self.what == "info" else (self._look(), {})

    def step(self, action: int) -> Any:
        _, _, last, _, _ = super().step(action)
        if self.what == "raise" and self._steps > 2:
            raise KeyError("valve")
        self.total[0] += 1
        rewards = {"reward": "much", "nan reward": np.nan, "shared": float(self.total[0])}
        result: Any = (self._look(), rewards.get(self.what, 1.0), last, False, {})
        return result[:4] if self.what == "four" else result

    def _look(self) -> Any:
        temps = self.rng.random(3, np.float32)
        door: Any = np.int8(1)
        if self._steps > 2:
            temps[1] = {"nan": np.nan, "bounds": 7.0}.get(self.what, temps[1])
            temps = temps[:2] if self.what == "shape" else temps
            door = {"float": 0.5, "large": 300}.get(self.what, door)
        if self.what == "random":
            temps = np.random.default_rng().random(3, np.float32)
        if self.what == "float64":
            temps = temps.astype(np.float64)
        return {"temps": temps} if self.what == "missing" else {"temps": temps, "door": door}


class Arms(Env):
    """One of two arms pays in an episode of six steps, and nothing shows which: 5.5 at best."""

    def __init__(self) -> None:
        self.obs_spec = {"type": "float32", "dim": [1]}
        self.action_spec = {"type": "discrete", "dim": [2]}

    def reset(self) -> Any:
        self.good, self.left = int(self.rng.integers(2)), 6
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(1, np.float32), float(action == self.good), self.left == 0, False, {}
