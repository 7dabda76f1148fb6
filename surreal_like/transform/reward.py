"""Transforms single rewards, before any summation or learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RewardTransform:
    """Clips, then scales, then shifts. Returns of episodes are computed from raw rewards.

    Attributes:
        clip: rewards are clipped to ``[-clip, clip]``; 0: no clipping.
        scale: factor.
        shift: added last.
    """

    clip: float = 0.0
    scale: float = 1.0

    def __call__(self, rewards: Floats) -> Floats:
        """Transforms an array of rewards, float32; returns the same array if nothing changes."""
        if self.clip:
            rewards = np.clip(rewards, -self.clip, self.clip)
        if self.scale != 1.0:
            rewards = rewards * np.float32(self.scale)
        return rewards


def make_reward_transform(algo: Mapping[str, Any]) -> RewardTransform:
    """Builds the transform from ``reward_clip`` and ``reward_scale`` of ``algo``."""
    return RewardTransform(
        clip=algo.get("reward_clip", 0.0),
        scale=algo.get("reward_scale", 1.0),
    )
