"""CartPole whose step takes 20 ms without using the processor, as a simulator elsewhere does."""

from __future__ import annotations

import time
from typing import Any

import gymnasium

STEP_SECONDS = 0.02


class SleepingPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole-v1 with a sleep in each step.

    Args:
        step_seconds: of each sleep.
    """

    def __init__(self, step_seconds: float = STEP_SECONDS) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._step_seconds = step_seconds

    def step(self, action: Any) -> Any:
        """Sleeps, then steps."""
        time.sleep(self._step_seconds)
        return self.env.step(action)
