"""Frame stacks: memory and messages hold each frame once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from surreal_like.experience.chunk import Chunk
from surreal_like.experiment.machine import replay_need
from surreal_like.replay.kinds import UniformReplay
from tests.surreal_like.replay.configs import configs


def replay_configs(capacity: int) -> dict[str, Config]:
    made = configs(session={"sender": {"flush_iteration": 64}}, capacity=capacity, min_size=1)
    made["env_config"].frame_stack = 4
    return made


def image_chunk(number: int) -> Chunk:
    """64 steps of two streams of Atari frames."""
    columns: dict[str, npt.NDArray[Any]] = {
        "step_type": np.ones((64, 2), np.uint8),
        "reward": np.zeros((64, 2), np.float32),
        "discount": np.ones((64, 2), np.float32),
        "version": np.ones((64, 2), np.int64),
        "obs": np.zeros((64, 2, 84, 84), np.uint8),
        "action": np.zeros((64, 2), np.int64),
    }
    return Chunk(columns, number, [0, 1], sender="agent-0", incarnation=1)


def test_a_transition_of_atari_takes_a_seventh_of_two_stacks() -> None:
    made = replay_configs(2048)
    replay = UniformReplay(**made)
    for number in range(1, 17):
        replay.insert(image_chunk(number))
    sampleable = replay.statistics()["sampleable"]
    # Two streams, each with one row that waits and three whose stacks are not whole.
    assert sampleable == 2048 - 2 * 4
    stacks = 2 * 4 * 84 * 84
    assert replay.statistics()["size_bytes"] / sampleable <= stacks / 7.5
    batch = replay.aggregate_batch(replay.sample(8))
    assert batch["obs"].nbytes + batch["obs_next"].nbytes == 8 * stacks
    chunk = image_chunk(1)
    assert chunk.size_bytes / chunk.size <= stacks / 7.5  # on the wire too


def test_what_a_plan_says_of_memory_is_that_of_single_frames() -> None:
    made = Config(replay_configs(1000))
    made.env_config.obs_spec = {"type": "uint8", "dim": [4, 84, 84]}
    made.env_config.action_spec = {"type": "discrete", "dim": [6]}
    assert replay_need(made).parts["observation"] == 84 * 84
