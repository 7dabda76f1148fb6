"""Environments of a user's own that draw themselves, and one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal_like.env.environment import Env, Info, Step, Wrapper


class Walk(Env):
    """Four steps to the right, each brighter than the one before."""

    metadata = {"render_fps": 10}  # noqa: RUF012 - as an author writes it
    obs_spec = {"type": "float32", "dim": [1]}  # noqa: RUF012
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012
    kind = np.uint8

    def __init__(self) -> None:
        self._place = 0

    def reset(self) -> tuple[Any, Info]:
        self._place = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Step:
        self._place += 1
        over = self._place == 4
        return np.full(1, self._place, np.float32), 2.0, over, False, {}

    def render(self) -> Any:
        return np.full((16, 16, 3), 50 * self._place, self.kind)


class Blind(Walk):
    """Draws nothing."""

    def render(self) -> Any:
        return None


class Float(Walk):
    """Draws what is no picture."""

    kind = np.float32  # type: ignore[assignment]


class Broken(Walk):
    """Fails to draw."""

    def render(self) -> Any:
        raise RuntimeError("no graphics card")


class Inverted(Wrapper):
    """Turns bright into dark."""

    def render(self) -> Any:
        return 255 - self.env.render()
