"""When a script has solved CartPole-v1: the same rule that ends our own runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

GOAL = 475.0
EPISODES = 100
LIMIT = 500
PAUSE_SECONDS = 0.5
WORDS = (
    f"solved: greedy mean return of at least {GOAL:g} over {EPISODES} episodes, and again over "
    f"{EPISODES} more on the same weights, all on seeds never used before; the clock runs from the "
    "start of the process, imports and evaluations included"
)

_MODE = "custom" if gymnasium.__version__.startswith("0.") else "vector_entry_point"

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]


class Criterion:
    """Looks at a policy now and then.

    Args:
        seed: of the run; the seeds of the episodes derive from it.
        started: when the process was started, seconds since 1970.
    """

    def __init__(self, seed: int, started: float) -> None:
        self.solved: dict[str, float] | None = None
        self._started = started
        self._imports_seconds = time.time() - started
        self._seeds = iter(range(10**6 * (seed + 1), 10**6 * (seed + 2)))
        self._next_at = 0.0
        self._evaluating_seconds = 0.0

    def look(self, act: Act, env_steps: int) -> bool:
        """True once the policy has solved it.

        Args:
            act: greedy actions ``[N]`` for observations ``[N, 4]``.
            env_steps: that it has learned from.
        """
        began = time.perf_counter()
        if began < self._next_at or self.solved is not None:
            return self.solved is not None
        first = self._play(act)
        again = self._play(act) if first >= GOAL else 0.0
        now = time.perf_counter()
        self._evaluating_seconds += now - began
        self._next_at = now + PAUSE_SECONDS
        if again >= GOAL:
            seconds = time.time() - self._started
            self.solved = {
                "greedy_seconds": round(seconds, 3),
                "without_imports_seconds": round(seconds - self._imports_seconds, 3),
                "env_steps": env_steps,
                "first_mean": first,
                "second_mean": again,
            }
        return self.solved is not None

    def _play(self, act: Act) -> float:
        """Mean return of the first episode of each stream; less where it cannot reach the goal."""
        # Anew each time: before version 1.0 of Gymnasium a reset left the count of steps standing.
        env = gymnasium.make_vec("CartPole-v1", num_envs=EPISODES, vectorization_mode=_MODE)
        obs, _ = env.reset(seed=next(self._seeds))
        returns, open_ = np.zeros(EPISODES), np.ones(EPISODES, np.bool_)
        for step in range(LIMIT):
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            returns += reward * open_
            open_ &= ~(terminated | truncated)
            best = returns.sum() + open_.sum() * (LIMIT - step - 1)
            if not open_.any() or best < GOAL * EPISODES:
                break
        return float(returns.mean())

    def tell(self, env_steps: int) -> None:
        """Prints what came of it, as the last line of the process."""
        told = {
            "solved": self.solved,
            "imports_seconds": round(self._imports_seconds, 3),
            "evaluating_seconds": round(self._evaluating_seconds, 3),
            "env_steps": env_steps,
        }
        print(json.dumps(told))
