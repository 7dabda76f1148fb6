"""Networks of the values of discrete actions, or of distributions of these values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from session import nest
from session.config import Config
from session.config.key import FROM_0, FROM_1, Idle, Key, Range
from session.errors import ConfigError
from surreal_like.network.encoder import BYTE_SCALE, FlatEncoder
from surreal_like.network.head import DuelingHead, make_stream
from surreal_like.network.masks import mask_values
from surreal_like.network.module import ObsModule
from surreal_like.network.noisy import Noise, NoisyLinear
from surreal_like.network.recurrent import MEMORY_INPUTS, make_memory
from surreal_like.network.torso import TORSO_CONFIG, Linear, LinearFactory, Torso, make_torso

Array = npt.NDArray[Any]

# Above this number of weights the layers take longer than the calls.
_MOST_WEIGHTS = 1 << 16
_AXES, _FLOAT32 = 2, np.dtype(np.float32)
# Function of numpy, and what it takes between input and output.
_ACTIVATIONS: Mapping[Any, tuple[Callable[..., Array], tuple[Any, ...]]] = MappingProxyType(
    {torch.relu: (np.maximum, (np.zeros((), np.float32),)), torch.tanh: (np.tanh, ())}
)


class ArrayNetwork:
    """Computes a torso and a linear layer on arrays, from the memory of their parameters.

    Parameters are read at each call, so those that are loaded later are used. The calls of numpy
    are those that take the least time for a few rows.
    """

    def __init__(self, torso: Torso, head: Linear) -> None:
        self._hooks = torso._forward_hooks, torso._forward_pre_hooks
        *self._hidden, self._last = (
            (layer.weight.detach().numpy().T, layer.bias.detach().numpy())
            for layer in (*torso.mlp.layers, head)
        )
        self._activate, self._between = _ACTIVATIONS[torso.mlp.activation]

    def __call__(self, obs: Array) -> Any:
        """Returns the outputs `[N, out_features]`, float32, of observations `[N, ...]`.

        None once a user has registered a hook on the torso, which only torch calls.
        """
        if self._hooks[0] or self._hooks[1]:
            return None
        x = obs if obs.ndim == _AXES else obs.reshape(len(obs), -1)
        if x.dtype is not _FLOAT32:
            x = x.astype(np.float32) * np.float32(BYTE_SCALE if x.dtype == np.uint8 else 1.0)
        for weight, bias in self._hidden:
            x = x.dot(weight)
            x += bias
            self._activate(x, *self._between, out=x)
        weight, bias = self._last
        x = x.dot(weight)
        x += bias
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


HEAD_CONFIG = TORSO_CONFIG | {
    "head_sizes": Key(
        [],
        "Widths of the hidden layers of each stream of the head: two streams if dueling.",
        within=FROM_1,
    ),
}

# The keys of `learner_config.model` for a QNetwork.
Q_NETWORK_CONFIG = HEAD_CONFIG | {
    "noisy": Key(
        0.0,
        "Initial noise of all linear layers behind the encoder, which explores instead of "
        "epsilon: 0.5 in the paper; 0: none.",
        within=FROM_0,
    ),
}

# Those of one with a memory.
RECURRENT_Q_CONFIG = HEAD_CONFIG | {
    "memory": Key("lstm", "Recurrent core between torso and head: lstm or gru."),
    "memory_size": Key(64, "Units of the recurrent core.", within=FROM_1),
    "memory_inputs": MEMORY_INPUTS,
}

KINDS = ("none", "categorical", "quantile")
_NO_ATOMS = Idle("kind", ("none", "quantile"))
_NO_QUANTILES = Idle("kind", ("none", "categorical"))

# The keys of `learner_config.algo.distribution`.
DISTRIBUTION_CONFIG = Config(
    {
        "kind": Key(
            "none",
            "none: mean values; categorical: probabilities of fixed atoms (C51); quantile: values "
            "of equal probability (QR-DQN).",
            one_of=KINDS,
        ),
        "atoms": Key(
            51,
            "Of categorical: number of atoms, equally spaced.",
            within=Range(2),
            idle=_NO_ATOMS,
        ),
        "v_min": Key(
            -10.0,
            "Of categorical: the smallest value.",
            unit="discounted rewards",
            idle=_NO_ATOMS,
        ),
        "v_max": Key(
            10.0,
            "Of categorical: the largest value.",
            unit="discounted rewards",
            idle=_NO_ATOMS,
        ),
        "quantiles": Key(
            51, "Of quantile: number of quantiles.", within=FROM_1, idle=_NO_QUANTILES
        ),
        "kappa": Key(
            1.0,
            "Of quantile: the loss is linear beyond this error; 0: everywhere.",
            within=FROM_0,
            idle=_NO_QUANTILES,
        ),
    }
)


class QNetwork(ObsModule):
    """Computes the values of all actions, `[B, num_actions]`, from observations `[B, ...]`.

    With a mask of actions, the values of illegal ones are `MASKED_VALUE`. With a memory it looks at
    sequences only: `unroll` and `act`.

    Args:
        obs_spec: observations spec from the environment config.
        num_actions: A below.
        model: the keys of `Q_NETWORK_CONFIG` or `RECURRENT_Q_CONFIG`.
        dueling: values are those of the state plus advantages of the actions.
        distribution: the keys of `DISTRIBUTION_CONFIG`.

    Attributes:
        kind: none, categorical or quantile.
        atoms: atoms of categorical, float32 `[K]`; otherwise one zero.
        noise: noise of its noisy layers; None without them.
        core: recurrent core between torso and head; None without a memory.

    Raises:
        ConfigError: `v_min` is not below `v_max`, or a setting of the memory is out of range.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        num_actions: int,
        *,
        model: Mapping[str, Any] = Q_NETWORK_CONFIG,
        dueling: bool = False,
        distribution: Mapping[str, Any] = DISTRIBUTION_CONFIG,
    ) -> None:
        super().__init__(obs_spec, model)
        _check(distribution)
        self.kind: str = distribution["kind"]
        sigma: float = model.get("noisy", 0.0)
        self.noise = Noise() if sigma else None
        linear: LinearFactory = Linear
        if sigma:
            linear = partial(NoisyLinear, sigma=sigma, noise=self.noise)
        self.torso = make_torso(obs_spec, model, linear=linear)
        outputs = _outputs(distribution)
        self._shape = (num_actions, outputs)
        width = self.torso.out_features
        # A Core, or an InformedCore.
        self.core: Any = None
        if model.get("memory"):
            actions = {"type": "discrete", "dim": [num_actions]}
            self.core = make_memory(model, width, actions)
            width = self.core.out_features
        names = {"hidden_sizes": "head_sizes", "activation": "activation"}
        hidden: dict[str, Any] = {name: model[key] for name, key in names.items()}
        hidden |= {"linear": linear, "layer_norm": model.get("layer_norm", False)}
        self.head: nn.Module
        if dueling:
            self.head = DuelingHead(width, num_actions, outputs=outputs, **hidden)
        elif model["head_sizes"]:
            self.head = make_stream(width, num_actions * outputs, **hidden)
        else:
            self.head = linear(width, num_actions * outputs)
        self.atoms: torch.Tensor
        self.register_buffer("atoms", _atoms(distribution), persistent=False)

    def forward(self, obs: Any) -> torch.Tensor:
        """Returns Q, float32 `[B, num_actions]`: of a distribution its means.

        Raises ValueError with a memory: then single observations are not sufficient.
        """
        if self.core is not None:
            raise ValueError("a network with a memory looks at sequences: call unroll() or act()")
        return self.mask_values(self.mean(self.outputs(obs)), obs)

    def unroll(
        self, obs: Any, state: torch.Tensor | None, first: torch.Tensor, **before: torch.Tensor
    ) -> tuple[torch.Tensor, Any]:
        """Returns Q `[T, B, num_actions]` of sequences, and the state after their last row.

        Args:
            obs: nest of tensors `[T, B, ...]`.
            state: state before the first row, `[B, state_size]`; None without a memory.
            first: bool `[T, B]`, True where an episode begins.
            before: `actions` and `rewards` of an :class:`InformedCore`, with `memory_inputs`.
        """
        rows = nest.map(lambda x: x.flatten(0, 1), obs)
        with self.parameter_lock:
            if self.core is None:
                q_values = self.mean(self.outputs(rows))
            else:
                features, state = self._remember(rows, state, first, **before)
                q_values = self.head(features.flatten(0, 1))
        return self.mask_values(q_values.view(*first.shape, -1), obs), state

    def burn_in(
        self, obs: Any, state: torch.Tensor, first: torch.Tensor, **before: torch.Tensor
    ) -> torch.Tensor:
        """Returns the state after sequences, `[B, state_size]`; arguments as of `unroll`."""
        if first.shape[0] == 0:
            return state
        rows = nest.map(lambda x: x.flatten(0, 1), obs)
        with self.parameter_lock:
            return self._remember(rows, state, first, **before)[1]

    def _remember(
        self, rows: Any, state: torch.Tensor | None, first: torch.Tensor, **before: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features: torch.Tensor = self.torso(self.seen(rows))
        found: tuple[torch.Tensor, torch.Tensor] = self.core(
            features.view(*first.shape, -1), state, first, **before
        )
        return found

    def act(
        self,
        obs: Any,
        state: torch.Tensor | None,
        first: torch.Tensor,
        rewards: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Any]:
        """Returns Q `[N, num_actions]` and the next state, at one row of each stream.

        Args:
            obs: nest of tensors `[N, ...]`.
            state: `[N, state_size]`; None without a memory.
            first: bool `[N]`, True where an episode begins.
            rewards: rewards before the rows, `[N]`, where the core reads them.
        """
        row = nest.map(lambda x: x.unsqueeze(0), obs)
        before = {} if rewards is None else {"rewards": rewards.unsqueeze(0)}
        q_values, state = self.unroll(row, state, first.unsqueeze(0), **before)
        return q_values[0], state

    def mask_values(self, values: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns values `[..., num_actions]` with those of illegal actions masked, if any are."""
        return values if self.mask is None else mask_values(values, self.mask.legal(obs))

    def on_arrays(self) -> ArrayNetwork | None:
        """Returns what computes the values from arrays; None where only torch can.

        Only for a small MLP of one flat observation, without noise, distribution, normalizer and
        memory.
        """
        plain = type(self) is QNetwork and self.kind == "none" and self.noise is None
        if not plain or self.normalizer is not None or self.core is not None:
            return None
        return array_network(self.torso, self.head)

    def distribution(self, obs: Any) -> torch.Tensor:
        """Returns float32 `[B, num_actions, K]`, without a mask: logits of the atoms, or quantiles.

        Without a distribution K is 1, and they are the values.
        """
        with self.parameter_lock:
            outputs = self.outputs(obs)
        return outputs.unsqueeze(-1) if self.kind == "none" else outputs

    def outputs(self, obs: Any) -> torch.Tensor:
        """Returns the outputs of the head: `[B, num_actions]` without a distribution."""
        if self.noise is not None:
            self.noise.draw(nest.leaves(obs)[0].shape[:1])
        own: dict[str, Any] = self._modules
        # `forward` directly: a call as a module would cost a quarter of the head's computation.
        found: torch.Tensor = own["head"].forward(own["torso"](self.seen(obs)))
        return found if self.kind == "none" else found.view(-1, *self._shape)

    def mean(self, outputs: torch.Tensor) -> torch.Tensor:
        """Returns the mean values `[...]` of outputs `[..., K]`; without a distribution them."""
        if self.kind == "none":
            return outputs
        if self.kind == "quantile":
            return outputs.mean(-1)
        return outputs.softmax(-1) @ self.atoms


def _outputs(distribution: Mapping[str, Any]) -> int:
    counts = {"categorical": distribution["atoms"], "quantile": distribution["quantiles"]}
    return int(counts.get(distribution["kind"], 1))


def _atoms(distribution: Mapping[str, Any]) -> torch.Tensor:
    if distribution["kind"] != "categorical":
        return torch.zeros(1)
    return torch.linspace(distribution["v_min"], distribution["v_max"], distribution["atoms"])


def _check(distribution: Mapping[str, Any]) -> None:
    """Raises ConfigError for bounds without a distance."""
    low, high = distribution["v_min"], distribution["v_max"]
    if not low < high:
        raise ConfigError(
            f"learner_config.algo.distribution has v_min {low}, not below v_max {high}"
        )
