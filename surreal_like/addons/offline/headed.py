"""Networks that are a torso and one head, and the defaults of what learns from recorded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from session.config import Config
from surreal_like.algorithm.continuous import SESSION_CONFIG
from surreal_like.network.distribution import Gaussian
from surreal_like.network.head import GaussianHead
from surreal_like.network.module import ObsModule
from surreal_like.network.torso import make_torso

# Those of the paper's code. Without a minimum, recordings without noise would make it ever smaller.
LEAST_LOG_STD = -5.0
_LARGEST_LOG_STD = 2.0

# Defaults of `learner_config.replay`: all rows are there soon, and none come after them.
REPLAY_CONFIG = Config({"batch_size": 128, "samples_per_insert": 0.0, "min_size": 128})
# Agents would add rows of the policy that is being learned.
OFFLINE_SESSION: Mapping[str, Any] = MappingProxyType(
    {**SESSION_CONFIG, "agent": {**SESSION_CONFIG["agent"], "num": 0}}
)


class Headed(ObsModule):
    """Computes what a head makes of the features of observations.

    Args:
        obs_spec: observations spec from the environment config.
        model: the keys of `TORSO_CONFIG`.
        make_head: called with the width of the features.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        model: Mapping[str, Any],
        make_head: Callable[[int], nn.Module],
    ) -> None:
        super().__init__(obs_spec, model)
        self.torso = make_torso(obs_spec, model)
        self.head = make_head(self.torso.out_features)

    def forward(self, obs: Any) -> Any:
        """Returns the output of the head for observations `[B, ...]`: a policy, or values `[B]`.

        With a mask of actions the head also gets what is legal.
        """
        own: dict[str, Any] = self._modules
        features = own["torso"](self.seen(obs))
        legal = () if self.mask is None else (self.mask.legal(obs),)
        return own["head"](features, *legal)


class TanhGaussianHead(GaussianHead):
    """A Gaussian over actions whose mean lies between -1 and 1; its draws may lie outside.

    The deviation is the same for all observations: Kostrikov et al. 2021, Offline Reinforcement
    Learning with Implicit Q-Learning, appendix B.
    """

    def forward(self, features: torch.Tensor) -> Gaussian:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        mean = super().forward(features).mean.tanh()
        return Gaussian(mean, self.log_std.clamp(LEAST_LOG_STD, _LARGEST_LOG_STD))
