"""The base class of networks that look at observations, which they may normalise before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surreal_like.network.module import Module
from surreal_like.transform.normalizer import Normalizer


class ObsModule(Module):
    """A `Module` that normalises observations where its model says `normalize_obs`.

    Args:
        obs_spec: the one of the environment config.
        model: of `learner_config`; without the key nothing is normalised.

    Attributes:
        normalizer: of observations, updated by the learner alone; None where there is none.
    """

    def __init__(self, obs_spec: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_spec) if model.get("normalize_obs", False) else None

    def seen(self, obs: Any) -> Any:
        """The nest of observations `[..., *shape]` as the layers see it."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def learn_moments(self, obs: Any) -> None:
        """Takes rows `[M, ...]` that were learned from into the normaliser, where there is one."""
        if self.normalizer is not None:
            self.normalizer.update(obs)
