"""TorchRL's buffers inside one process. Rounds of :mod:`worker`.

python torchrl_rounds.py
"""

from __future__ import annotations

import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyTensorStorage,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)

sys.path.append(str(Path(__file__).resolve().parent.parent))
from steps import transitions
from worker import Answer, repeat, serve

CAPACITY = 100_000
BUFFERS: dict[tuple[str, int], Any] = {}


def rows_of(count: int) -> Any:
    """Transitions as a TensorDict."""
    columns = {name: torch.from_numpy(column) for name, column in transitions(count).items()}
    return TensorDict(columns, batch_size=[count])


def uniform(batch_size: int) -> Any:
    """A filled buffer that draws uniformly, made once."""
    if ("uniform", batch_size) not in BUFFERS:
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(CAPACITY), batch_size=batch_size)
        buffer.extend(rows_of(CAPACITY))
        BUFFERS["uniform", batch_size] = buffer
    return BUFFERS["uniform", batch_size]


def add(length: int, num_envs: int, seconds: float) -> Answer:
    """Adds as many transitions at once as one of our chunks has rows."""
    rows = length * num_envs
    buffer, data = uniform(256), rows_of(rows)

    def work() -> int:
        buffer.extend(data)
        return rows

    return repeat(work, seconds)


def sample(batch_size: int, seconds: float) -> Answer:
    """Draws batches."""
    buffer = uniform(batch_size)

    def work() -> int:
        buffer.sample()
        return batch_size

    return repeat(work, seconds)


def prioritized(batch_size: int, seconds: float) -> Answer:
    """Draws batches by priority and gives each row a new one."""
    if ("prioritized", batch_size) not in BUFFERS:
        buffer = TensorDictPrioritizedReplayBuffer(
            alpha=0.6, beta=0.4, storage=LazyTensorStorage(CAPACITY), batch_size=batch_size
        )
        buffer.extend(rows_of(CAPACITY))
        BUFFERS["prioritized", batch_size] = buffer
    buffer = BUFFERS["prioritized", batch_size]
    fresh = cycle(torch.rand(64, batch_size))

    def work() -> int:
        batch = buffer.sample()
        batch["td_error"] = next(fresh)
        buffer.update_tensordict_priority(batch)
        return batch_size

    return repeat(work, seconds)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"add": add, "sample": sample, "prioritized": prioritized})
