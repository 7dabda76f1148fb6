"""Heads: from features `[B, in_features]` to the outputs of an algorithm.

Heads of policies and of state values accept features with any leading axes, `[T, B, ...]` too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from surreal_like.data.spec import parse_action_spec
from surreal_like.network.distribution import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from surreal_like.network.torso import MLP

_LEAST_LOG_STD = -20.0
_LARGEST_LOG_STD = 2.0


class QHead(nn.Linear):
    """One linear layer for the value of each action, `[B, num_actions]`."""


class DuelingHead(nn.Module):
    """Computes Q from a state value and advantages minus their mean: Wang et al. 2016, equation 9.

    Each of the two streams may have its own hidden layers.
    """

    def __init__(
        self,
        in_features: int,
        num_actions: int,
        *,
        hidden_sizes: Sequence[int] = (),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.value = _stream(in_features, hidden_sizes, 1, activation)
        self.advantage = _stream(in_features, hidden_sizes, num_actions, activation)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns Q, `[B, num_actions]`."""
        advantage = self.advantage(features)
        q_values: torch.Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return q_values


def _stream(
    in_features: int, hidden_sizes: Sequence[int], out_features: int, activation: str
) -> nn.Module:
    hidden = MLP(in_features, hidden_sizes, activation=activation)
    return nn.Sequential(hidden, nn.Linear(hidden.out_features, out_features))


class ValueHead(nn.Linear):
    """One linear layer for the value of the state, `[...]`."""

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns the values `[...]` of features `[..., in_features]`."""
        return super().forward(features).squeeze(-1)


class CategoricalHead(nn.Linear):
    """One linear layer for the logits of one choice, or of several.

    Args:
        in_features: width of the features.
        nums: number of actions of each choice.
        several: actions are `[..., choices]`, even with one choice.
    """

    def __init__(self, in_features: int, nums: Sequence[int], *, several: bool = False) -> None:
        super().__init__(in_features, sum(nums))
        self._nums = None if not several and len(nums) == 1 else tuple(nums)

    def forward(self, features: torch.Tensor) -> Distribution:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        return self._of(super().forward(features))

    def of(self, columns: Mapping[str, torch.Tensor]) -> Distribution:
        """Rebuilds the policy of `columns`."""
        return self._of(columns["logits"])

    def _of(self, logits: torch.Tensor) -> Distribution:
        return Categorical(logits) if self._nums is None else MultiCategorical(logits, self._nums)


class GaussianHead(nn.Linear):
    """One linear layer for the mean of continuous actions, `[..., size]`.

    The standard deviation is the same for all observations, and learned: Schulman et al. 2015
    (TRPO), appendix D. Its logarithm is initially `log_std`.
    """

    def __init__(self, in_features: int, size: int, *, log_std: float = 0.0) -> None:
        super().__init__(in_features, size)
        self.log_std = nn.Parameter(torch.full((size,), log_std))

    def forward(self, features: torch.Tensor) -> Gaussian:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        return Gaussian(super().forward(features), self.log_std)

    def of(self, columns: Mapping[str, torch.Tensor]) -> Gaussian:
        """Rebuilds the policy of `columns`."""
        return Gaussian(columns["mean"], columns["log_std"])


class SquashedGaussianHead(nn.Linear):
    """One linear layer for mean and deviation of actions from -1 to 1, `[..., size]`."""

    def __init__(self, in_features: int, size: int) -> None:
        super().__init__(in_features, 2 * size)

    def forward(self, features: torch.Tensor) -> SquashedGaussian:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        mean, log_std = super().forward(features).chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(_LEAST_LOG_STD, _LARGEST_LOG_STD))

    def of(self, columns: Mapping[str, torch.Tensor]) -> SquashedGaussian:
        """Rebuilds the policy of `columns`."""
        return SquashedGaussian(columns["mean"], columns["log_std"])


PolicyHead = CategoricalHead | GaussianHead


def make_policy_head(
    in_features: int, action_spec: Mapping[str, Any], *, log_std: float = 0.0
) -> PolicyHead:
    """Builds the head of a stochastic policy over the actions of a spec.

    Discrete actions are int64 `[...]`, several choices int64 `[..., choices]`, continuous ones
    float32 `[..., size]`, for any shape in the environment, and not bounded.

    Args:
        in_features: width of the features.
        action_spec: from the environment config.
        log_std: initial log standard deviation of continuous actions.
    """
    spec = parse_action_spec(action_spec)
    if spec.type == "continuous":
        return GaussianHead(in_features, math.prod(spec.dim), log_std=log_std)
    return CategoricalHead(in_features, spec.dim, several=spec.type == "multi_discrete")
