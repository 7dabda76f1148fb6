"""Environments that go wrong, in agents only: whoever resolves the experiment sees none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from surreal_like.env.environment import Step
from surreal_like.env.toy import Chain

MODULE = "tests.runs.faulty"
STEPS_BEFORE = 200


def in_agent() -> bool:
    """Whether this process is an agent: its title says so."""
    return "main.agent" in Path("/proc/self/cmdline").read_text()


class Unbuildable(Chain):
    """Its constructor raises."""

    def __init__(self) -> None:
        super().__init__()
        if in_agent():
            raise ConnectionError("the simulator does not answer on port 5005")


class Wrong(Chain):
    """Some steps of agents give what the specs do not allow.

    Args:
        what: ``nan``, ``dtype``, ``shape`` or ``raise``.
    """

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._steps_left = STEPS_BEFORE

    def step(self, action: int) -> Step:
        obs, reward, terminated, truncated, info = super().step(action)
        self._steps_left -= 1
        if in_agent() and self._steps_left < 0:
            return self._spoil(obs), reward, terminated, truncated, info
        return obs, reward, terminated, truncated, info

    def _spoil(self, obs: Any) -> Any:
        if self._what == "nan":
            return np.full_like(obs, np.nan)
        if self._what == "dtype":
            return obs.astype(np.complex64)
        if self._what == "shape":
            return obs[:-1]
        raise ValueError("the simulator gave up")


class Shaky(Chain):
    """Raises an error at some steps and resets."""

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self._crash(0.02)
        return super().reset()

    def step(self, action: Any) -> Step:
        self._crash(0.005)
        return super().step(action)

    def _crash(self, share: float) -> None:
        if self.rng.random() < share:
            raise ValueError("the simulator crashed")
