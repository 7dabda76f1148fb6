"""Leaves illegal actions out of values and of logits, by the mask of an observation.

Large finite numbers take the place of what is masked: with infinities, rows in which nothing is
legal, the last ones of episodes, would make NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from surreal_like.data.masks import MASK, has_mask

# Below every value that float32 can still learn; its square is finite.
MASKED_VALUE = -1e9
# exp() of it is 0, and float32 still resolves tenths at it, so that ratios of probabilities are
# finite.
MASKED_LOGIT = -1e6


class ActionMask:
    """Reads masks from observations, and removes them where only features are wanted.

    Args:
        obs_spec: observations spec from the environment config, with a mask.
    """

    def __init__(self, obs_spec: Mapping[str, Any]) -> None:
        self._stacked = len(obs_spec[MASK]["dim"]) == 2

    def legal(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns bool `[..., A]`, True where an action is legal, of observations `[..., *dim]`."""
        mask = obs[MASK]
        return (mask[..., -1, :] if self._stacked else mask) != 0

    @staticmethod
    def features(obs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the other parts of observations."""
        return {key: part for key, part in obs.items() if key != MASK}


def make_mask(obs_spec: Mapping[str, Any]) -> ActionMask | None:
    """Returns what reads the masks of such observations; None if they have none."""
    return ActionMask(obs_spec) if has_mask(obs_spec) else None


def mask_values(values: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """Returns values `[..., A]` of which illegal ones are `MASKED_VALUE`.

    Where nothing is legal all are 0: an episode that has been cut off there has no further rewards.
    """
    fill = legal.any(-1, keepdim=True).to(values.dtype) * MASKED_VALUE
    return torch.where(legal, values, fill)


def legal_values(values: torch.Tensor) -> torch.Tensor:
    """Returns bool `[..., A]`, False where `mask_values` has masked a value."""
    return values > MASKED_VALUE


def mask_logits(logits: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """Returns logits `[..., A]` of which illegal ones are `MASKED_LOGIT`.

    Their probability is 0; where nothing is legal all actions are equally likely.
    """
    return torch.where(legal, logits, MASKED_LOGIT)
