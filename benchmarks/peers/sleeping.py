"""CartPole whose step takes 20 ms without using the processor, as a simulator elsewhere does."""

from __future__ import annotations

import time
from typing import Any

import gymnasium

STEP_SECONDS = 0.02


class SleepingPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole-v1 with a sleep in each step."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        """Sleeps, then steps."""
        time.sleep(STEP_SECONDS)
        return self.env.step(action)
