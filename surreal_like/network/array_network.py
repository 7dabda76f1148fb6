"""Small networks on numpy arrays, without calls of torch.

An agent of one environment computes a row of a small network and then sleeps for its simulator.
Then torch's dispatch, no longer in the processor's caches, takes several times as long as the
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from surreal_like.network.encoder import BYTE_SCALE, FlatEncoder
from surreal_like.network.torso import Linear, Torso

Array = npt.NDArray[Any]

# Above this number of weights the layers take longer than the calls.
_MOST_WEIGHTS = 1 << 16
_ACTIVATIONS: Mapping[Any, Callable[..., Array]] = MappingProxyType(
    {torch.relu: lambda x: np.maximum(x, 0.0, out=x), torch.tanh: lambda x: np.tanh(x, out=x)}
)


class ArrayNetwork:
    """Computes a torso and a linear layer on arrays, from the memory of their parameters.

    Parameters are read at each call, so those that are loaded later are used.
    """

    def __init__(self, torso: Torso, head: Linear) -> None:
        self._torso = torso
        layers = [*torso.mlp.layers, head]
        self._weights = [layer.weight.detach().numpy().T for layer in layers]
        self._biases = [layer.bias.detach().numpy() for layer in layers]
        self._activate = _ACTIVATIONS[torso.mlp.activation]

    @property
    def usable(self) -> bool:
        """False once a user has registered a hook on the torso, which only torch calls."""
        return not (self._torso._forward_hooks or self._torso._forward_pre_hooks)

    def __call__(self, obs: Array) -> Array:
        """Returns the outputs `[N, out_features]`, float32, of observations `[N, ...]`."""
        x = obs.reshape(len(obs), -1)
        if x.dtype != np.float32:
            x = x.astype(np.float32) * np.float32(BYTE_SCALE if x.dtype == np.uint8 else 1.0)
        last = len(self._weights) - 1
        for index, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            x = np.dot(x, weight)
            x += bias
            if index < last:
                x = self._activate(x)
        return x


def array_network(torso: nn.Module, head: nn.Module) -> ArrayNetwork | None:
    """Returns the network for arrays; None unless these are a small MLP of the library's layers."""
    if type(torso) is not Torso or type(torso.encoder) is not FlatEncoder:
        return None
    layers = [*torso.mlp.layers, head]
    plain = all(type(layer) is Linear and layer.weight.device.type == "cpu" for layer in layers)
    if not plain or torso.mlp.activation not in _ACTIVATIONS:
        return None
    weights = sum(layer.weight.numel() for layer in layers)
    return ArrayNetwork(torso, head) if weights <= _MOST_WEIGHTS else None  # type: ignore[arg-type]
