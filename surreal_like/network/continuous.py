"""Networks for continuous actions: policies and critics.

Inside, actions are vectors `[B, size]` from -1 to 1; `ActionScale` converts them to actions of the
environment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from surreal_like.network.distribution import ActionScale as ActionScale
from surreal_like.network.distribution import SquashedGaussian
from surreal_like.network.encoder import make_encoder
from surreal_like.network.head import SquashedGaussianHead
from surreal_like.network.module import ObsModule
from surreal_like.network.torso import ACTIVATIONS, Linear, make_torso


class DeterministicPolicy(ObsModule):
    """Computes one action per observation: a torso, a linear layer and tanh."""

    def __init__(self, obs_spec: Mapping[str, Any], size: int, model: Mapping[str, Any]) -> None:
        super().__init__(obs_spec, model)
        self.torso = make_torso(obs_spec, model)
        self.head = Linear(self.torso.out_features, size)

    def forward(self, obs: Any) -> torch.Tensor:
        """Returns actions from -1 to 1, `[B, size]`."""
        own: dict[str, Any] = self._modules
        return torch.tanh(own["head"](own["torso"](self.seen(obs))))


class SquashedPolicy(ObsModule):
    """Computes a squashed Gaussian per observation."""

    def __init__(self, obs_spec: Mapping[str, Any], size: int, model: Mapping[str, Any]) -> None:
        super().__init__(obs_spec, model)
        self.torso = make_torso(obs_spec, model)
        self.head = SquashedGaussianHead(self.torso.out_features, size)

    def forward(self, obs: Any) -> SquashedGaussian:
        """Returns the policy over actions from -1 to 1, `[B, size]`."""
        own: dict[str, Any] = self._modules
        policy: SquashedGaussian = own["head"](own["torso"](self.seen(obs)))
        return policy


class Critics(ObsModule):
    """Computes the values of actions by several separate networks at once.

    Args:
        obs_spec: observations spec from the environment config.
        size: size of actions.
        model: `hidden_sizes`, `activation`, `layer_norm` of each network; a user's torso, one per
            network, comes before its layers.
        count: number of networks.
    """

    def __init__(
        self, obs_spec: Mapping[str, Any], size: int, model: Mapping[str, Any], *, count: int = 2
    ) -> None:
        super().__init__(obs_spec, model)
        self.encoders = nn.ModuleList(_encoder(obs_spec, model) for _ in range(count))
        width = int(self.encoders[0].out_features)  # type: ignore[arg-type]
        # Encoders without parameters are identical, so one of them is enough.
        self._learns = any(True for _ in self.encoders.parameters())
        widths = [width + size, *model["hidden_sizes"], 1]
        normed = model.get("layer_norm", False)
        self.layers = _StackedMLP(count, widths, model["activation"], layer_norm=normed)

    def forward(self, obs: Any, actions: torch.Tensor) -> torch.Tensor:
        """Returns the values `[count, B]` of actions `[B, size]`.

        Of several actions for each observation, `[K, B, size]`, they are `[count, K, B]`; each
        observation is encoded once.
        """
        own: dict[str, Any] = self._modules
        obs, several = self.seen(obs), actions.shape[:-2]
        if self._learns:
            features = torch.stack([encoder(obs) for encoder in self.encoders])
            actions = actions.expand(features.shape[0], *actions.shape)
        else:
            features = own["encoders"][0](obs)
        if several:
            ends = features.shape[:-2], features.shape[-2:]
            features = features.unsqueeze(-3).expand(*ends[0], *several, *ends[1])
        x = torch.cat((features, actions), -1)
        values: torch.Tensor = own["layers"](x.flatten(-3, -2) if several else x).squeeze(-1)
        return values.view(-1, *actions.shape[-3:-1]) if several else values


class _StackedMLP(nn.Module):
    """Several MLPs of one shape, batched: a call of a small one takes as long as computing it."""

    def __init__(
        self, count: int, widths: Sequence[int], activation: str, *, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.count = count
        self.activation = ACTIVATIONS[activation]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        # Scales and shifts of normalized layers, those of each network its own.
        hidden = widths[1:-1] if layer_norm else []
        self.scales = nn.ParameterList(torch.ones(count, 1, width) for width in hidden)
        self.shifts = nn.ParameterList(torch.zeros(count, 1, width) for width in hidden)
        for fan_in, fan_out in pairwise(widths):
            # The initialization of nn.Linear.
            bound = 1.0 / math.sqrt(fan_in)
            self.weights.append(_uniform(bound, count, fan_in, fan_out))
            self.biases.append(_uniform(bound, count, 1, fan_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[B, in]`, or `[count, B, in]`, to `[count, B, out]`."""
        x = x.expand(self.count, *x.shape[-2:])
        last = len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if index < last:
                if len(self.scales):
                    plain = functional.layer_norm(x, x.shape[-1:])
                    x = torch.addcmul(self.shifts[index], plain, self.scales[index])
                x = self.activation(x)
        return x


def _uniform(bound: float, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


def _encoder(obs_spec: Mapping[str, Any], model: Mapping[str, Any]) -> nn.Module:
    if model["torso"]:
        return make_torso(obs_spec, model)
    keys = ("image_features", "convolutions")
    layers = {key: model[key] for key in keys}
    return make_encoder(obs_spec, layer_norm=model.get("layer_norm", False), **layers)
