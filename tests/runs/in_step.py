"""CartPole in arrays, which resets within its step."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode


def cartpole(num_envs: int) -> Any:
    """Returns Gymnasium's own batch."""
    return gymnasium.make_vec(
        "CartPole-v1",
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
