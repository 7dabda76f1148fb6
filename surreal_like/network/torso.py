"""Torsos: from observations to features `[B, out_features]`.

A call of a submodule takes as long as the computation of a small layer, so nesting is flat here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from session import nest
from session.config import Config
from session.config.key import FROM_1, Idle, Key
from session.config.named_code import load_callable
from session.errors import ConfigError, describe
from surreal_like.data.masks import feature_spec
from surreal_like.data.spec import parse_obs_spec
from surreal_like.network.encoder import NATURE, make_encoder

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "elu": functional.elu,
        "gelu": functional.gelu,
        "relu": torch.relu,
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
)

# The keys of `learner_config.model` for `make_torso`.
TORSO_CONFIG = Config(
    {
        "torso": Key(
            "",
            "A user's own network before the heads, package.module:Class or file.py:Class; empty: "
            "the keys below.",
        ),
        "torso_args": Key(
            {},
            "Keyword arguments of that class, in addition to the observation spec.",
            idle=Idle("torso", ("",)),
        ),
        "hidden_sizes": Key([64, 64], "Widths of the fully connected layers.", within=FROM_1),
        "activation": Key(
            "relu", "Nonlinearity of these layers.", one_of=tuple(sorted(ACTIVATIONS))
        ),
        "layer_norm": Key(
            False,
            "Normalize the outputs of each hidden layer before its nonlinearity; of a convolution "
            "those of all channels and pixels together.",
        ),
        "convolutions": Key(
            [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "Of each image: [channels, side of the kernel, stride] of each convolution; the "
            "default is the Nature CNN.",
            unit="pixels",
        ),
        "image_features": Key(
            512,
            "Number of features of each image, from the fully connected layer behind convolutions.",
            within=FROM_1,
        ),
        "normalize_obs": Key(
            False,
            "Normalize observations to mean 0 and deviation 1, by the moments of all learned rows.",
        ),
        "frozen": Key(
            [],
            "Parts of the networks that stay as they are, such as torso or torso.encoder; with "
            "normalize_obs also normalizer. A wrong name is refused with those that exist.",
        ),
    }
)


LinearFactory = Callable[[int, int], nn.Module]


class Linear(nn.Linear):
    """A fully connected layer whose `forward`, called directly, takes little more than computing.

    At small batches, a layer that is called as a module takes twice as long as its computation, and
    looking up a parameter as an attribute half as long. So networks of this package look up their
    parts in torch's dictionaries, and call `forward` of small ones; torsos are called as modules,
    because users register hooks there.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `[..., out_features]` of `[..., in_features]`."""
        own: dict[str, Any] = self._parameters
        return functional.linear(x, own["weight"], own["bias"])


class NormalizedLayer(nn.Module):
    """A layer whose outputs are normalized over each row, then scaled and shifted: Ba et al. 2016.

    `[..., in_features]` to `[..., out_features]`; `linear` builds the layer from both widths.
    """

    def __init__(self, in_features: int, out_features: int, linear: LinearFactory) -> None:
        super().__init__()
        self.linear = linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `[..., out_features]` of `[..., in_features]`."""
        own: dict[str, Any] = self._modules
        found: torch.Tensor = own["norm"].forward(own["linear"].forward(x))
        return found


class MLP(nn.Module):
    """Fully connected layers, each followed by the activation: `[B, in]` to `[B, out_features]`.

    Without hidden sizes it returns its input. `linear` builds a layer from both widths; with
    `layer_norm` its outputs are normalized before the activation. Raises ConfigError for an unknown
    activation.
    """

    def __init__(
        self,
        in_features: int,
        hidden_sizes: Sequence[int],
        *,
        activation: str = "relu",
        linear: LinearFactory = Linear,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation is {activation!r}, expected one of {', '.join(sorted(ACTIVATIONS))}"
            )
        if not all(isinstance(size, int) and size > 0 for size in hidden_sizes):
            raise ConfigError(f"hidden_sizes is {[*hidden_sizes]}, expected widths of 1 or more")
        if layer_norm:
            linear = partial(NormalizedLayer, linear=linear)
        widths = [in_features, *hidden_sizes]
        self.layers = nn.ModuleList(linear(*pair) for pair in pairwise(widths))
        self.activation = ACTIVATIONS[activation]
        self.out_features = widths[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns float32 `[B, out_features]`."""
        own: dict[str, Any] = self._modules
        for layer in own["layers"]._modules.values():
            x = self.activation(layer.forward(x))
        return x


class AnyTorso(nn.Module):
    """A module from observations to features `[B, out_features]`: a `Torso`, or a user's own."""

    out_features: int


class Torso(AnyTorso):
    """Encodes every part of an observation by its spec, concatenates them, and applies an MLP.

    An observation is a nest of tensors `[B, ...]` that matches `obs_spec`; output `[B,
    out_features]`.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        image_features: int = 512,
        convolutions: Sequence[Sequence[int]] = NATURE,
        linear: LinearFactory = Linear,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(
            obs_spec,
            image_features=image_features,
            convolutions=convolutions,
            layer_norm=layer_norm,
        )
        self.mlp = MLP(
            self.encoder.out_features,
            hidden_sizes,
            activation=activation,
            linear=linear,
            layer_norm=layer_norm,
        )
        self.out_features = self.mlp.out_features

    def forward(self, obs: Any) -> torch.Tensor:
        """Returns the features `[B, out_features]`, float32."""
        own: dict[str, Any] = self._modules
        features: torch.Tensor = own["mlp"].forward(own["encoder"].forward(obs))
        return features


def make_torso(
    obs_spec: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    linear: LinearFactory = Linear,
) -> AnyTorso:
    """Builds the network before the heads, as described by `learner_config.model`.

    Args:
        obs_spec: observations spec from the environment config.
        model: has the keys of `TORSO_CONFIG`; other keys are ignored here.
        linear: builds the layers behind the encoder; a user's own torso has its own.

    Returns:
        A module from a nest of observations, leaves `[B, ...]`, to float32 `[B, out_features]`,
        with `out_features` as an attribute.

    Raises:
        ConfigError: the class does not exist, rejects the arguments, or makes no such module.
    """
    path = model["torso"]
    if not path:
        names = ("hidden_sizes", "activation", "image_features", "convolutions")
        layers = {name: model[name] for name in names}
        return Torso(obs_spec, linear=linear, layer_norm=model.get("layer_norm", False), **layers)
    where = f"learner_config.model.torso '{path}'"
    torso = load_callable(path, "learner_config.model.torso")
    try:
        # A copy: the constructor may change its arguments, and the next network needs them.
        made = torso(feature_spec(obs_spec), **deepcopy(model["torso_args"]))
    except (AttributeError, TypeError) as error:
        raise ConfigError(
            f"{where} cannot be built with torso_args: {error}; its first argument is the "
            "observation spec, a mapping such as {type: float32, dim: [4]}"
        ) from error
    if not isinstance(made, nn.Module) or not isinstance(getattr(made, "out_features", None), int):
        raise ConfigError(
            f"{where} gives {type(made).__name__}, expected a torch.nn.Module with the attribute "
            "out_features, the width of what it gives"
        )
    _check_width(made, feature_spec(obs_spec), where)
    return cast(AnyTorso, made)


def _check_width(torso: Any, obs_spec: Mapping[str, Any], where: str) -> None:
    """Raises ConfigError if a user's torso gives other features than its `out_features` says."""
    zeros = nest.map(lambda leaf: torch.from_numpy(leaf.zeros(1)), parse_obs_spec(obs_spec))
    try:
        # A copy: layers of the torso may count or change what they see.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = list(deepcopy(torso).eval()(zeros).shape)
    except Exception as error:
        raise ConfigError(
            f"{where} fails with one observation of zeros, of the spec {dict(obs_spec)}: "
            f"{describe(error)}"
        ) from error
    if found != [1, torso.out_features]:
        raise ConfigError(
            f"{where} gives features of shape {found} for one observation, but its out_features is "
            f"{torso.out_features}: expected [1, {torso.out_features}]"
        )
