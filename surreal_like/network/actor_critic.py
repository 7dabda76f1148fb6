"""A policy and its state values, from one network or from two separate ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from session import nest
from session.config import Config
from session.config.key import FROM_1, Key
from surreal_like.data.added_parts import critic_parts, policy_spec
from surreal_like.network.distribution import Distribution
from surreal_like.network.head import POLICIES, ScaledValueHead, ValueHead, make_policy_head
from surreal_like.network.module import ObsModule
from surreal_like.network.recurrent import MEMORY_INPUTS, check_inputs, make_memory
from surreal_like.network.torso import TORSO_CONFIG, AnyTorso, make_torso

# The keys of `learner_config.model` for a stochastic policy.
POLICY_CONFIG = Config(
    {
        "policy": Key(
            "gaussian",
            "Of continuous actions: gaussian, not bounded and clipped by the environment; beta or "
            "squashed_gaussian, within the bounds of the actions.",
            one_of=POLICIES,
        ),
        "log_std": Key(0.0, "Initial log standard deviation of a gaussian policy."),
        "variance": Key(
            "",
            "Variance of a gaussian policy: state (computed from the observation), or empty: "
            "learned, the same for all observations.",
        ),
    }
)
# The keys of `learner_config.model` for an ActorCritic.
ACTOR_CRITIC_CONFIG = (
    TORSO_CONFIG
    | {
        "activation": "tanh",
        "shared": Key(
            False,
            "One torso for policy and value (always so with a memory, never with a state); "
            "otherwise one for each.",
        ),
        "memory": Key("", "Recurrent core between torso and heads: lstm, gru; empty: none."),
        "memory_size": Key(64, "Units of the recurrent core.", within=FROM_1),
        "memory_inputs": MEMORY_INPUTS,
    }
    | POLICY_CONFIG
    | {
        "normalize_values": Key(
            False, "Learn values in units of the running deviation of their targets (PopArt)."
        ),
    }
)


class ActorCritic(ObsModule):
    """Computes policy and value of a nest of observations.

    Layers are initialized orthogonally; the last one of the policy is near 0, so that all actions
    are initially about equally likely: Andrychowicz et al. 2021, What Matters in On-Policy
    Reinforcement Learning, section 3.2.

    Observations may have parts that only values see. They then have a torso of their own, without a
    memory, and `act` does not need these parts.

    Args:
        obs_spec: observations spec from the environment config.
        action_spec: action spec from the environment config.
        model: the keys of `ACTOR_CRITIC_CONFIG`.

    Attributes:
        core: recurrent core, None without a memory.
    """

    def __init__(
        self, obs_spec: Mapping[str, Any], action_spec: Mapping[str, Any], model: Mapping[str, Any]
    ) -> None:
        super().__init__(obs_spec, model)
        self._hidden = critic_parts(obs_spec)
        self.torso = make_torso(policy_spec(obs_spec), model)
        width = self.torso.out_features
        check_inputs(model)
        self.core = make_memory(model, width, action_spec) if model["memory"] else None
        alone = (model["shared"] or self.core is not None) and not self._hidden
        self.value_torso = None if alone else make_torso(obs_spec, model)
        width = width if self.core is None else self.core.out_features
        self.head = make_policy_head(
            width,
            action_spec,
            log_std=model["log_std"],
            policy=model["policy"],
            variance=model.get("variance", ""),
        )
        width = width if self.value_torso is None else self.value_torso.out_features
        self.value_head = (ScaledValueHead if model["normalize_values"] else ValueHead)(width)
        if not model["torso"]:
            _initialize(self, math.sqrt(2.0))
        _initialize(self.head, 0.01)
        _orthogonal(self.value_head, 1.0)

    def forward(self, obs: Any) -> tuple[Distribution, torch.Tensor]:
        """Returns policy and values `[B]` of observations `[B, ...]`.

        Raises ValueError with a memory: then single observations are not sufficient.
        """
        if self.core is not None:
            raise ValueError("a network with a memory looks at unrolls: call unroll() or act()")
        own: dict[str, Any] = self._modules
        seen = self.seen(obs)
        features = own["torso"](self._of_policy(seen) if self._hidden else seen)
        policy = self._policy(features, obs)
        if own.get("value_torso") is not None:
            features = own["value_torso"](seen)
        return policy, own["value_head"](features)

    def unroll(
        self,
        obs: Any,
        state: torch.Tensor | None,
        first: torch.Tensor,
        **before: torch.Tensor,
    ) -> tuple[Distribution, torch.Tensor]:
        """Returns policy `[T, B]` and values `[T, B]` of an unroll.

        Args:
            obs: nest of tensors `[T, B, ...]`.
            state: state before the first row, `[B, state_size]`; None without a memory.
            first: bool `[T, B]`, True where an episode begins.
            before: `actions` and `rewards` of an :class:`InformedCore`, with `memory_inputs`.
        """
        with self.parameter_lock:
            seen = self.seen(obs)
            features = self._over_rows(self.torso, self._of_policy(seen), first)
            if self.core is not None and state is not None:
                features, _ = self.core(features, state, first, **before)
            policy = self._policy(features, obs)
            if self.value_torso is not None:
                features = self._over_rows(self.value_torso, seen, first)
            values: torch.Tensor = self.value_head(features)
        return policy, values

    @staticmethod
    def _over_rows(torso: AnyTorso, obs: Any, first: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = torso(nest.map(lambda x: x.flatten(0, 1), obs))
        return features.view(*first.shape, -1)

    def act(
        self,
        obs: Any,
        state: torch.Tensor | None,
        first: torch.Tensor,
        rewards: torch.Tensor | None = None,
    ) -> tuple[Distribution, torch.Tensor | None]:
        """Returns the policy and the next state, at one row of each stream.

        Args:
            obs: nest of tensors `[N, ...]`.
            state: `[N, state_size]`; None without a memory.
            first: bool `[N]`, True where an episode begins.
            rewards: rewards before the rows, `[N]`, where the core reads them.
        """
        with self.parameter_lock:
            own: dict[str, Any] = self._modules
            features = own["torso"](self.seen(self._of_policy(obs) if self._hidden else obs))
            if self.core is not None and state is not None:
                before = {} if rewards is None else {"rewards": rewards.unsqueeze(0)}
                outs, state = self.core(features.unsqueeze(0), state, first.unsqueeze(0), **before)
                features = outs[0]
            policy = self._policy(features, obs)
        return policy, state

    def _of_policy(self, obs: Any) -> Any:
        """Returns the parts of observations that the policy sees."""
        return {k: x for k, x in obs.items() if k not in self._hidden} if self._hidden else obs

    def _policy(self, features: torch.Tensor, obs: Any) -> Distribution:
        """Returns the policy at features; it never draws what the mask of `obs` forbids."""
        head: Any = self._modules["head"]
        made: Distribution
        made = head(features) if self.mask is None else head(features, self.mask.legal(obs))
        return made


def _initialize(module: nn.Module, gain: float) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            _orthogonal(layer, gain)


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
