"""cpprb inside one process. Rounds of :mod:`worker`.

python cpprb_rounds.py
"""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from steps import transitions
from worker import Answer, repeat, serve

CAPACITY = 100_000
COLUMNS: dict[str, dict[str, Any]] = {
    "obs": {"shape": 4, "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "discount": {"dtype": np.float32},
    "obs_next": {"shape": 4, "dtype": np.float32},
}
N_STEP = {"size": 3, "gamma": 0.99, "rew": "reward", "next": "obs_next"}


def add(length: int, num_envs: int, seconds: float) -> Answer:
    """Adds as many transitions at once as one of our chunks has rows."""
    rows = length * num_envs
    data = transitions(rows)
    buffer = ReplayBuffer(CAPACITY, COLUMNS)

    def work() -> int:
        buffer.add(**data)
        return rows

    return repeat(work, seconds)


def sample(batch_size: int, seconds: float, n_step: int = 1) -> Answer:
    """Draws batches; n-step sums are made when rows are added."""
    if n_step > 1:
        columns = {**COLUMNS, "done": {}}
        buffer = ReplayBuffer(CAPACITY, columns, Nstep=N_STEP)
        data = transitions(CAPACITY)
        buffer.add(**data, done=1.0 - data["discount"])
    else:
        buffer = ReplayBuffer(CAPACITY, COLUMNS)
        buffer.add(**transitions(CAPACITY))

    def work() -> int:
        buffer.sample(batch_size)
        return batch_size

    return repeat(work, seconds)


def prioritized(batch_size: int, seconds: float) -> Answer:
    """Draws batches by priority and gives each row a new one."""
    buffer = PrioritizedReplayBuffer(CAPACITY, COLUMNS, alpha=0.6)
    buffer.add(**transitions(CAPACITY))
    fresh = cycle(np.random.default_rng(0).random((64, batch_size)).astype(np.float32))

    def work() -> int:
        batch = buffer.sample(batch_size, beta=0.4)
        buffer.update_priorities(batch["indexes"], next(fresh))
        return batch_size

    return repeat(work, seconds)


if __name__ == "__main__":
    serve({"add": add, "sample": sample, "prioritized": prioritized})
