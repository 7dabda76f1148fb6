"""A policy and the value of its states, by one network or by two side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import nn

from surreal_like.network.distribution import Distribution
from surreal_like.network.head import ValueHead, make_policy_head
from surreal_like.network.module import Module
from surreal_like.network.torso import TORSO_CONFIG, make_torso

# The keys of `learner_config.model` from which an ActorCritic is built.
ACTOR_CRITIC_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        **TORSO_CONFIG,
        # elu, gelu, relu, silu or tanh.
        "activation": "tanh",
        # One torso for policy and value; otherwise one for each.
        "shared": False,
        # Where the logarithm of the deviation of continuous actions begins.
        "log_std": 0.0,
    }
)


class PolicyHead(Protocol):
    """Gives a policy at features, or the one that has been written down as columns."""

    def __call__(self, features: torch.Tensor) -> Distribution:
        """The policy at features `[..., in_features]`."""
        ...

    def of(self, columns: Mapping[str, torch.Tensor]) -> Distribution:
        """The policy of these columns."""
        ...


class ActorCritic(Module):
    """Policy and value of a nest of observations `[B, ...]`.

    Layers begin orthogonal, the last one of the policy near 0, so that it begins undecided:
    Andrychowicz et al. 2021, What Matters in On-Policy Reinforcement Learning, section 3.2.

    Args:
        obs_spec: the one of the environment config.
        action_spec: the one of the environment config.
        model: the keys of `ACTOR_CRITIC_CONFIG`.
    """

    def __init__(
        self, obs_spec: Mapping[str, Any], action_spec: Mapping[str, Any], model: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.torso = make_torso(obs_spec, model)
        self.value_torso = None if model["shared"] else make_torso(obs_spec, model)
        width = self.torso.out_features
        self.head = make_policy_head(width, action_spec, log_std=model["log_std"])
        self.value_head = ValueHead(width)
        if not model["torso"]:
            _initialize(self)
        _orthogonal(self.head, 0.01)
        _orthogonal(self.value_head, 1.0)

    def forward(self, obs: Any) -> tuple[Distribution, torch.Tensor]:
        """Gives the policy and the values `[B]`."""
        features = self.torso(obs)
        if self.value_torso is None:
            return self.head(features), self.value_head(features)
        return self.head(features), self.value_head(self.value_torso(obs))

    def policy(self, obs: Any) -> Distribution:
        """Gives the policy only."""
        with self.parameter_lock:
            policy: Distribution = self.head(self.torso(obs))
        return policy

    def value(self, obs: Any) -> torch.Tensor:
        """Gives the values `[B]` only."""
        with self.parameter_lock:
            torso = self.torso if self.value_torso is None else self.value_torso
            values: torch.Tensor = self.value_head(torso(obs))
        return values


def _initialize(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            _orthogonal(layer, math.sqrt(2.0))


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
