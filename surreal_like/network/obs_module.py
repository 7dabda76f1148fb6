"""Base class of networks with observations as input, which may normalise them first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from surreal_like.network.module import Module
from surreal_like.transform.normalizer import Normalizer


class ObsModule(Module):
    """A `Module` that normalises observations if its model has `normalize_obs`.

    Args:
        obs_spec: from the environment config.
        model: from `learner_config`; without the key nothing is normalised.

    Attributes:
        normalizer: of observations, updated only by the learner; None without one.
    """

    def __init__(self, obs_spec: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_spec) if model.get("normalize_obs", False) else None

    def seen(self, obs: Any) -> Any:
        """Returns the nest of observations `[..., *shape]` as input of the layers."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def learn_moments(self, obs: Any) -> None:
        """Updates the normaliser, if there is one, with rows `[M, ...]` that were learned from."""
        if self.normalizer is not None:
            self.normalizer.update(obs)

    def merge_moments(self, moments: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Updates it with rows whose `Normalizer.moments` were computed elsewhere."""
        if self.normalizer is not None:
            self.normalizer.merge(moments)
