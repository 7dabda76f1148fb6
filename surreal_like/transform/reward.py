"""Transforms single rewards, before any summation or learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config.named_code import find_function
from session.errors import ConfigError

Floats = npt.NDArray[np.float32]

_KEY = "learner_config.algo.reward_function"
# Both signs, zero, and sizes from small to large.
_PROBE = np.concatenate([np.linspace(-20, 20, 33), np.linspace(-1, 1, 31)]).astype(np.float32)


@dataclass(frozen=True)
class RewardTransform:
    """Clips, scales, calls a function. Returns of episodes are computed from raw rewards.

    Attributes:
        clip: rewards are clipped to ``[-clip, clip]``; 0: no clipping.
        scale: factor.
        function: called last, with float32 ``[M]``; returns float32 ``[M]``.
    """

    clip: float = 0.0
    scale: float = 1.0
    function: Callable[[Floats], Floats] | None = None

    def __call__(self, rewards: Floats) -> Floats:
        """Transforms an array of rewards, float32; returns the same array if nothing changes."""
        if self.clip:
            rewards = np.clip(rewards, -self.clip, self.clip)
        if self.scale != 1.0:
            rewards = rewards * np.float32(self.scale)
        if self.function is not None:
            changed = np.asarray(self.function(rewards.reshape(-1)), np.float32)
            rewards = changed.reshape(rewards.shape)
        return rewards


def make_reward_transform(algo: Mapping[str, Any]) -> RewardTransform:
    """Builds the transform from ``reward_clip``, ``reward_scale``, ``reward_function`` of ``algo``.

    Raises:
        ConfigError: the function cannot be loaded, or does not map each reward by itself.
    """
    name = algo.get("reward_function")
    return RewardTransform(
        clip=algo.get("reward_clip", 0.0),
        scale=algo.get("reward_scale", 1.0),
        function=None if name is None else _find(name),
    )


def _find(name: str) -> Callable[[Floats], Floats]:
    """Returns the function of a setting; it has mapped 64 numbers, together and in two halves."""
    function = find_function(name, _KEY, "rewards")
    half = len(_PROBE) // 2
    whole, first, second = (
        _call(function, name, x) for x in (_PROBE, _PROBE[:half], _PROBE[half:])
    )
    if not np.allclose(whole, np.concatenate([first, second]), rtol=1e-5, atol=1e-6):
        raise ConfigError(
            f"{_KEY} {name!r} gives a reward another value beside other rewards: it must change "
            "each one by itself; algo.normalize_rewards scales by all"
        )
    return function


def _call(function: Callable[[Floats], Any], name: str, rewards: Floats) -> Floats:
    given = f"{_KEY} {name!r}, of float32 [{len(rewards)}],"
    try:
        # A copy: a function that changes its argument changes no other reward.
        found = np.asarray(function(rewards.copy()), np.float32)
    except Exception as error:
        raise ConfigError(f"{given} raises {type(error).__name__}: {error}") from error
    if found.shape != rewards.shape:
        raise ConfigError(f"{given} gives {list(found.shape)}, expected the same shape")
    if not np.isfinite(found).all():
        place = np.flatnonzero(~np.isfinite(found))[0]
        raise ConfigError(f"{given} gives {found[place]} for {rewards[place]:g}: expected a number")
    return found
