"""Criterion of a solved task: the same rule that ends our own runs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
from judge import Act, judged, start_seeds

EPISODES = 100
PAUSE_SECONDS = 0.5
_MODE = "custom" if gymnasium.__version__.startswith("0.") else "vector_entry_point"


@dataclass(frozen=True)
class Task:
    """Task to be solved.

    Args:
        env_name: of Gymnasium.
        goal: mean return of greedy episodes.
        limit: steps of the longest episode.
        best_reward: of one step.
        vectorization: how Gymnasium makes many of them.
    """

    env_name: str
    goal: float
    limit: int
    best_reward: float
    vectorization: str


CARTPOLE = Task("CartPole-v1", 475.0, 500, 1.0, _MODE)
PENDULUM = Task("Pendulum-v1", -165.0, 200, 0.0, "sync")
WORDS = (
    f"solved: greedy mean return of at least {CARTPOLE.goal:g} over {EPISODES} episodes, and "
    f"again over {EPISODES} more on the same weights, all on seeds never used before; the clock "
    "runs from the start of the process, imports and evaluations included"
)


class Criterion:
    """Looks at a policy now and then.

    Args:
        seed: of the run; the seeds of the episodes derive from it.
        started: when the process was started, seconds since 1970.
        task: what is to be solved.
        every_steps: look whenever so many environment steps have passed; 0: half seconds.
    """

    def __init__(
        self, seed: int, started: float, *, task: Task = CARTPOLE, every_steps: int = 0
    ) -> None:
        self._task, self._seed = task, seed
        self._every_steps = every_steps
        self._looked_at = 0
        self.solved: dict[str, float] | None = None
        self._started = started
        self._imports_seconds = time.time() - started
        # The copies of a task get the seed and those behind it; the first are those of the judge.
        self._seeds = iter(start_seeds(seed, 10**6)[EPISODES::EPISODES])
        self._next_at = 0.0
        self._evaluating_seconds = 0.0

    def look(self, act: Act, env_steps: int) -> bool:
        """True once the policy has solved it.

        Args:
            act: greedy actions ``[N, ...]`` for observations ``[N, ...]``.
            env_steps: that it has learned from.
        """
        began = time.perf_counter()
        if self.solved is not None or not self._due(began, env_steps):
            return self.solved is not None
        goal = self._task.goal
        first = self._play(act)
        again = self._play(act) if first >= goal else -np.inf
        now = time.perf_counter()
        self._evaluating_seconds += now - began
        self._next_at = now + PAUSE_SECONDS
        if again >= goal:
            seconds = time.time() - self._started
            self.solved = {
                "greedy_seconds": round(seconds, 3),
                "without_imports_seconds": round(seconds - self._imports_seconds, 3),
                "env_steps": env_steps,
                "first_mean": first,
                "second_mean": again,
            }
        return self.solved is not None

    def _due(self, now: float, env_steps: int) -> bool:
        if not self._every_steps:
            return now >= self._next_at
        due = env_steps - self._looked_at >= self._every_steps
        self._looked_at = env_steps if due else self._looked_at
        return due

    def _play(self, act: Act) -> float:
        """Mean return of the first episode of each stream; less where it cannot reach the goal."""
        # Anew each time: before version 1.0 of Gymnasium a reset left the count of steps standing.
        task = self._task
        env = gymnasium.make_vec(
            task.env_name, num_envs=EPISODES, vectorization_mode=task.vectorization
        )
        obs, _ = env.reset(seed=next(self._seeds))
        returns, open_ = np.zeros(EPISODES), np.ones(EPISODES, np.bool_)
        for step in range(task.limit):
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            returns += reward * open_
            open_ &= ~(terminated | truncated)
            left = open_.sum() * (task.limit - step - 1)
            if not open_.any() or returns.sum() + left * task.best_reward < task.goal * EPISODES:
                break
        return float(returns.mean())

    def report(self, env_steps: int, act: Act) -> None:
        """Prints what came of it, and what the last weights reach, as the last line."""
        task, seeds = self._task, start_seeds(self._seed, EPISODES)
        result = {
            "solved": self.solved,
            "imports_seconds": round(self._imports_seconds, 3),
            "evaluating_seconds": round(self._evaluating_seconds, 3),
            "env_steps": env_steps,
            "judged_mean_return": judged(act, task.env_name, seeds, task.limit),
        }
        print(json.dumps(result))
