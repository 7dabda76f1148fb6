"""stable-baselines3's buffer inside one process. Rounds of :mod:`worker`.

python sb3_rounds.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

sys.path.append(str(Path(__file__).resolve().parent.parent))
from steps import transitions
from worker import Answer, repeat, serve

CAPACITY = 100_000
BUFFERS: dict[int, ReplayBuffer] = {}


def filled(num_envs: int) -> ReplayBuffer:
    """A buffer for so many environments, filled, made once."""
    if num_envs not in BUFFERS:
        space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        buffer = ReplayBuffer(CAPACITY, space, spaces.Discrete(2), "cpu", n_envs=num_envs)
        BUFFERS[num_envs] = buffer
        add_steps(buffer, num_envs, buffer.buffer_size)
    return BUFFERS[num_envs]


def add_steps(buffer: ReplayBuffer, num_envs: int, steps: int) -> None:
    """Adds one step of all environments after the other, which is all that it takes."""
    data = transitions(num_envs)
    done = 1.0 - data["discount"]
    infos: list[dict[str, object]] = [{} for _ in range(num_envs)]
    for _ in range(steps):
        buffer.add(data["obs"], data["obs_next"], data["action"], data["reward"], done, infos)


def add(length: int, num_envs: int, seconds: float) -> Answer:
    """Adds transitions, a step of all environments at a time."""
    buffer = filled(num_envs)

    def work() -> int:
        add_steps(buffer, num_envs, length)
        return length * num_envs

    return repeat(work, seconds)


def sample(batch_size: int, seconds: float) -> Answer:
    """Draws batches."""
    buffer = filled(1)

    def work() -> int:
        buffer.sample(batch_size)
        return batch_size

    return repeat(work, seconds)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"add": add, "sample": sample})
