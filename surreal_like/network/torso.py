"""Torsos: from the observation that came in to features `[B, out_features]`.

To call a submodule takes as long as to compute a small layer, so little is nested here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from session.errors import ConfigError
from surreal_like.network.encoder import make_encoder

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "elu": functional.elu,
        "gelu": functional.gelu,
        "relu": torch.relu,
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
)


class MLP(nn.Module):
    """Fully connected layers, each followed by the activation: `[B, in]` to `[B, out_features]`.

    Without hidden sizes it gives its input back. Raises ConfigError for an unknown activation.
    """

    def __init__(
        self, in_features: int, hidden_sizes: Sequence[int], *, activation: str = "relu"
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation is {activation!r}, expected one of {', '.join(sorted(ACTIVATIONS))}"
            )
        if not all(isinstance(size, int) and size > 0 for size in hidden_sizes):
            raise ConfigError(f"hidden_sizes is {[*hidden_sizes]}, expected widths of 1 or more")
        widths = [in_features, *hidden_sizes]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.activation = ACTIVATIONS[activation]
        self.out_features = widths[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gives float32 `[B, out_features]`."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


class Torso(nn.Module):
    """Encodes every part of an observation by its spec, joins the parts, and runs an MLP on them.

    An observation is a nest of tensors `[B, ...]` as `obs_spec` says; gives `[B, out_features]`.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        image_features: int = 512,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(obs_spec, image_features=image_features)
        self.mlp = MLP(self.encoder.out_features, hidden_sizes, activation=activation)
        self.out_features = self.mlp.out_features

    def forward(self, obs: Any) -> torch.Tensor:
        """Gives the features `[B, out_features]`, float32."""
        features: torch.Tensor = self.mlp(self.encoder(obs))
        return features
