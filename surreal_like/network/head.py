"""Heads: from features `[B, in_features]` to the outputs of an algorithm.

Heads of policies and of state values accept features with any leading axes, `[T, B, ...]` too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from session.errors import ConfigError
from surreal_like.data.spec import parse_action_spec
from surreal_like.errors import SpecError
from surreal_like.network.distribution import (
    ActionScale,
    Beta,
    Bounded,
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from surreal_like.network.masks import mask_logits
from surreal_like.network.torso import MLP, Linear, LinearFactory
from surreal_like.transform.normalizer import Moments

_LEAST_LOG_STD = -20.0
_LARGEST_LOG_STD = 2.0
_LEAST_VARIANCE = 1e-6


class DuelingHead(nn.Module):
    """Computes Q from a state value and advantages minus their mean: Wang et al. 2016, equation 9.

    Args:
        in_features: width of the features.
        num_actions: A below.
        outputs: K numbers for each action; the mean is over the actions, output by output.
        hidden: hidden layers that each of the two streams has; see `make_stream`.
    """

    def __init__(
        self,
        in_features: int,
        num_actions: int,
        *,
        outputs: int = 1,
        **hidden: Any,
    ) -> None:
        super().__init__()
        self._outputs = outputs
        self.value = make_stream(in_features, outputs, **hidden)
        self.advantage = make_stream(in_features, num_actions * outputs, **hidden)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns Q, `[B, num_actions]`, or `[B, num_actions, K]` with several outputs."""
        value, advantage = self.value(features), self.advantage(features)
        if self._outputs > 1:
            value = value.unsqueeze(1)
            advantage = advantage.view(advantage.shape[0], -1, self._outputs)
        q_values: torch.Tensor = value + advantage - advantage.mean(1, keepdim=True)
        return q_values


def make_stream(
    in_features: int,
    out_features: int,
    *,
    hidden_sizes: Sequence[int] = (),
    activation: str = "relu",
    linear: LinearFactory = Linear,
    layer_norm: bool = False,
) -> nn.Module:
    """Builds hidden layers and a linear output layer: `[B, in_features]` to `[B, out_features]`."""
    how: dict[str, Any] = {"activation": activation, "linear": linear, "layer_norm": layer_norm}
    hidden = MLP(in_features, hidden_sizes, **how)
    return nn.Sequential(hidden, linear(hidden.out_features, out_features))


class ValueHead(Linear):
    """One linear layer for the value of the state, `[...]`."""

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns the values `[...]` of features `[..., in_features]`."""
        return super().forward(features).squeeze(-1)


class ScaledValueHead(ValueHead):
    """A value head whose layer computes values in units of the deviation of their targets.

    The moments of the targets are buffers: only the learner updates them (`ValueScale`), and they
    are published and saved with the weights, without which those mean nothing.

    Attributes:
        moments: moments of all targets so far; before the first update mean 0 and deviation 1.
    """

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features)
        self.moments = Moments(())

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns the values `[...]` of features `[..., in_features]`, in units of the rewards."""
        return super().forward(features) / self.moments.scale + self.moments.shift


class CategoricalHead(Linear):
    """One linear layer for the logits of one choice, or of several.

    Args:
        in_features: width of the features.
        nums: number of actions of each choice.
        several: actions are `[..., choices]`, even with one choice.
    """

    def __init__(self, in_features: int, nums: Sequence[int], *, several: bool = False) -> None:
        super().__init__(in_features, sum(nums))
        self._nums = None if not several and len(nums) == 1 else tuple(nums)

    def forward(  # type: ignore[override]
        self, features: torch.Tensor, legal: torch.Tensor | None = None
    ) -> Distribution:
        """Returns the policy at features `[..., in_features]`.

        legal: bool `[..., sum(nums)]`, False for actions that it never draws; None: all are legal.
        """
        logits = super().forward(features)
        return self._of(logits if legal is None else mask_logits(logits, legal))

    def of(self, columns: Mapping[str, torch.Tensor]) -> Distribution:
        """Rebuilds the policy of `columns`."""
        return self._of(columns["logits"])

    def _of(self, logits: torch.Tensor) -> Distribution:
        return Categorical(logits) if self._nums is None else MultiCategorical(logits, self._nums)


class GaussianHead(Linear):
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


class StateGaussianHead(Linear):
    """One linear layer for mean and variance of continuous actions, `[..., size]`.

    The variance is softplus of its output, plus 1e-6: Mnih et al. 2016 (A3C), section 9.
    """

    def __init__(self, in_features: int, size: int) -> None:
        super().__init__(in_features, 2 * size)

    def forward(self, features: torch.Tensor) -> Gaussian:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        return self.policy(*super().forward(features).chunk(2, -1))

    @staticmethod
    def policy(mean: torch.Tensor, x: torch.Tensor) -> Gaussian:
        """Returns the policy of both outputs, `[..., size]`."""
        return Gaussian(mean, 0.5 * (functional.softplus(x) + _LEAST_VARIANCE).log())

    def of(self, columns: Mapping[str, torch.Tensor]) -> Gaussian:
        """Rebuilds the policy of `columns`."""
        return Gaussian(columns["mean"], columns["log_std"])


class SquashedGaussianHead(Linear):
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


class BetaHead(Linear):
    """One linear layer for both parameters of Beta distributions over bounded actions.

    They are `1 + softplus`, so that each density has one peak. `scale` has positions from 0 to 1.
    """

    def __init__(self, in_features: int, scale: ActionScale) -> None:
        super().__init__(in_features, 2 * scale.size)
        self.scale = scale

    def forward(self, features: torch.Tensor) -> Bounded[Beta]:  # type: ignore[override]
        """Returns the policy at features `[..., in_features]`."""
        alpha, beta = (1.0 + functional.softplus(super().forward(features))).chunk(2, -1)
        return Bounded(Beta(alpha, beta), self.scale)

    def of(self, columns: Mapping[str, torch.Tensor]) -> Bounded[Beta]:
        """Rebuilds the policy of `columns`."""
        return Bounded(Beta(columns["alpha"], columns["beta"]), self.scale)


class BoundedGaussianHead(nn.Module):
    """A squashed Gaussian over bounded actions. `scale` has positions from -1 to 1."""

    def __init__(self, in_features: int, scale: ActionScale) -> None:
        super().__init__()
        self.unit = SquashedGaussianHead(in_features, scale.size)
        self.scale = scale

    def forward(self, features: torch.Tensor) -> Bounded[SquashedGaussian]:
        """Returns the policy at features `[..., in_features]`."""
        return Bounded(self.unit.forward(features), self.scale)

    def of(self, columns: Mapping[str, torch.Tensor]) -> Bounded[SquashedGaussian]:
        """Rebuilds the policy of `columns`."""
        return Bounded(self.unit.of(columns), self.scale)


PolicyHead = CategoricalHead | GaussianHead | StateGaussianHead | BetaHead | BoundedGaussianHead
POLICIES = ("gaussian", "beta", "squashed_gaussian")
VARIANCES = ("", "state")


def make_policy_head(
    in_features: int,
    action_spec: Mapping[str, Any],
    *,
    log_std: float = 0.0,
    policy: str = "gaussian",
    variance: str = "",
) -> PolicyHead:
    """Builds the head of a stochastic policy over the actions of a spec.

    Discrete actions are int64 `[...]`, several choices int64 `[..., choices]`, continuous ones
    float32 `[..., size]`, for any shape in the environment.

    Args:
        in_features: width of the features.
        action_spec: action spec from the environment config.
        log_std: initial log standard deviation of Gaussian actions.
        policy: policy of continuous actions: gaussian (not bounded), beta or squashed_gaussian.
        variance: state: computed from the features, for gaussian actions; empty: one for all.

    Raises:
        ConfigError: the policy is none of these, or needs continuous actions with bounds; or
            another variance.
    """
    spec = parse_action_spec(action_spec)
    where = f"learner_config.model.policy is {policy!r}"
    if policy not in POLICIES:
        raise ConfigError(f"{where}, expected one of {', '.join(POLICIES)}")
    if variance not in VARIANCES or (variance and policy != "gaussian"):
        raise ConfigError(
            f"learner_config.model.variance is {variance!r} and policy {policy!r}, expected '', or "
            "state for a gaussian policy"
        )
    if policy != "gaussian" and spec.type != "continuous":
        raise ConfigError(f"{where}, but {spec.type} actions have no bounds: set it to gaussian")
    if policy != "gaussian":
        try:
            scale = ActionScale(action_spec, from_zero=policy == "beta")
        except SpecError as error:
            raise ConfigError(f"{where}, but {error}: set it to gaussian") from error
        return (BetaHead if policy == "beta" else BoundedGaussianHead)(in_features, scale)
    if spec.type == "continuous":
        size = math.prod(spec.dim)
        if variance:
            return StateGaussianHead(in_features, size)
        return GaussianHead(in_features, size, log_std=log_std)
    return CategoricalHead(in_features, spec.dim, several=spec.type == "multi_discrete")
