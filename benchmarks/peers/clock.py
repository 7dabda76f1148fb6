"""Progress of a peer: both criteria of being solved, and environment steps per second."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from criterion import CARTPOLE, Criterion
from judge import Act

EPISODES = 100


class Clock:
    """Watches a training from its process's start to both criteria, or to the end of its time.

    Args:
        seed: of the run.
        started: when the process was started, seconds since 1970.
        seconds: after which it is over: from the start; of a rate from the first learned step.
        plays: judges returns, and ends when both criteria are met; else only steps are counted.
    """

    def __init__(self, seed: int, started: float, seconds: float, *, plays: bool) -> None:
        self.plays = plays
        self._criterion = Criterion(seed, started) if plays else None
        self._started = started
        self._seconds = seconds
        self._rolling: dict[str, float] | None = None
        self._steps: list[tuple[float, int]] = []

    def over(self, env_steps: int, returns: Sequence[float], act: Act) -> bool:
        """Takes a look; True when there is nothing more to wait for.

        Args:
            env_steps: that were learned from.
            returns: of the training episodes that ended last, the newest behind.
            act: greedy actions for observations.
        """
        now = time.time()
        if env_steps and (not self._steps or self._steps[-1][1] != env_steps):
            self._steps.append((now, env_steps))
        if self._criterion is None:
            return bool(self._steps) and now - self._steps[0][0] >= self._seconds
        newest = list(returns)[-EPISODES:]
        if (
            self._rolling is None
            and len(newest) == EPISODES
            and sum(newest) >= CARTPOLE.goal * EPISODES
        ):
            self._rolling = {"seconds": now - self._started, "env_steps": env_steps}
        solved = bool(env_steps) and self._criterion.look(act, env_steps)
        return (solved and self._rolling is not None) or now - self._started >= self._seconds

    def rate(self) -> float | None:
        """Environment steps per second, without the first quarter of the time."""
        if not self._steps:
            return None
        begin = self._steps[0][0] + (self._steps[-1][0] - self._steps[0][0]) / 4
        late = [point for point in self._steps if point[0] >= begin]
        if len(late) < 2:
            return None
        return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0])

    def report(self) -> None:
        """Prints what came of it, as the last line of the process."""
        greedy = self._criterion.solved if self._criterion is not None else None
        result = {
            "greedy_seconds": greedy and greedy["greedy_seconds"],
            "greedy_env_steps": greedy and greedy["env_steps"],
            "rolling_seconds": self._rolling and self._rolling["seconds"],
            "rolling_env_steps": self._rolling and self._rolling["env_steps"],
            "env_steps": self._steps[-1][1] if self._steps else 0,
            "rate": self.rate(),
        }
        print(json.dumps(result), flush=True)
