"""Encodes a nest of observations as one flat float tensor, part by part, by the spec.

| spec of the part | encoding |
|---|---|
| `num` is given | one-hot: `num` values of each element, or a list with the number of each |
| an image from which the convolutions leave a pixel: by default 36 x 36 | a CNN |
| anything else | flattened |

An image has channels first or last, or none (two dimensions, uint8); or it is a stack of images,
whose frames become channels.

Parts of type uint8 are scaled to [0, 1] on their device, so that they are transferred as single
bytes. A mask of actions is no feature: it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from session import nest
from session.errors import ConfigError
from surreal_like.data.masks import feature_spec
from surreal_like.data.spec import ArraySpec, parse_obs_spec
from surreal_like.errors import SpecError

# Channels, side of the kernel and stride of each convolution of the Nature CNN: Mnih et al. 2015,
# Human-level control, Methods.
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
BYTE_SCALE = 1.0 / 255.0


class FlatEncoder(nn.Module):
    """Flattens `[B, *shape]` of any dtype to float32 `[B, size]`; bytes are scaled to [0, 1]."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.out_features = math.prod(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns float32 `[B, size]`."""
        return _to_float(x if x.dim() == 2 else x.reshape(x.shape[0], -1))


class OneHotEncoder(nn.Module):
    """Converts integers `[B, *shape]` to one-hot float32 `[B, sum(nums)]`.

    `nums` is the number of values of each element.
    """

    def __init__(self, nums: Sequence[int]) -> None:
        super().__init__()
        offsets = torch.tensor([0, *nums[:-1]]).cumsum(0)
        # Derived from the spec, so it need not be sent with the parameters.
        self.register_buffer("offsets", offsets, persistent=False)
        self.offsets: torch.Tensor
        self.out_features = sum(nums)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns float32 `[B, sum(nums)]`."""
        index = x.reshape(x.shape[0], -1).long() + self.offsets
        zeros = torch.zeros(x.shape[0], self.out_features, device=x.device)
        return zeros.scatter_(1, index, 1.0)


class CNN(nn.Module):
    """Convolutions and one fully connected layer, each followed by ReLU; the Nature CNN by default.

    Input: images of any dtype, `[B, height, width, channels]` or `[B, channels, height, width]`:
        the shorter one of the outer axes is the channels. An axis of stacked frames may precede
        either; `[B, height, width]` has one channel. Output: float32 `[B, out_features]`.

    Args:
        shape: shape of one image.
        convolutions: channels, side of the kernel [pixels] and stride [pixels] of each.
        out_features: width of the fully connected layer.
        layer_norm: normalize the outputs of each layer before its ReLU, of a convolution over all
            channels and pixels, with a scale and a shift for each channel.

    Raises:
        ConfigError: a convolution is not three whole numbers of 1 or more.
        SpecError: the image has no pixel left after the convolutions.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        convolutions: Sequence[Sequence[int]] = NATURE,
        out_features: int = 512,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        *frames, first, second, third = (1,) * (3 - len(shape)) + tuple(shape)
        self.channels_last = _has_channels_last(shape)
        height, width = (first, second) if self.channels_last else (second, third)
        self.channels = math.prod(frames) * (third if self.channels_last else first)
        layers: list[nn.Module] = []
        channels = self.channels
        for count, kernel, stride in _checked(convolutions):
            layers.append(nn.Conv2d(channels, count, kernel_size=kernel, stride=stride))
            layers += [nn.GroupNorm(1, count)] if layer_norm else []
            layers.append(nn.ReLU())
            channels = count
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
            if min(height, width) < 1:
                raise SpecError(
                    f"an image of {list(shape)} is too small for the convolutions"
                    f" {[list(each) for each in convolutions]} [channels, kernel, stride]: no pixel"
                    " is left"
                )
        self.layers = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(channels * height * width, out_features),
            *([nn.LayerNorm(out_features)] if layer_norm else []),
            nn.ReLU(),
        )
        self.out_features = out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the features, float32 `[B, out_features]`."""
        if self.channels_last:
            x = x.movedim(-1, -3)
        if x.dim() != 4:
            x = x.reshape(x.shape[0], self.channels, *x.shape[-2:])
        if torch.is_grad_enabled():
            # In the backward pass, convolutions take 25 % less time with channels last. Before the
            # conversion, this moves bytes instead of floats.
            x = x.contiguous(memory_format=torch.channels_last)
        features: torch.Tensor = self.layers(_to_float(x))
        return features


class NestEncoder(nn.Module):
    """Encodes the leaves of a nest of observations and concatenates them, in the order of the spec.

    `leaves` maps the path of each leaf in the nest to its encoder.
    """

    def __init__(self, leaves: Mapping[str, LeafEncoder]) -> None:
        super().__init__()
        self.paths = tuple(leaves)
        # A list, because paths of leaves may contain characters that module names may not.
        self.parts = nn.ModuleList(leaves.values())
        self.out_features = sum(part.out_features for part in leaves.values())

    def forward(self, obs: Any) -> torch.Tensor:
        """Returns float32 `[B, out_features]`."""
        leaves = nest.flatten(obs)
        return torch.cat(
            [part(leaves[path]) for path, part in zip(self.paths, self.parts, strict=True)], dim=1
        )


LeafEncoder = FlatEncoder | OneHotEncoder | CNN


def make_encoder(
    obs_spec: Mapping[str, Any],
    *,
    image_features: int = 512,
    convolutions: Sequence[Sequence[int]] = NATURE,
    layer_norm: bool = False,
) -> LeafEncoder | NestEncoder:
    """Builds the module that encodes a nest of observations `[B, ...]` as float32 `[B,
    out_features]`.

    Args:
        obs_spec: observations spec from the environment config.
        image_features: number of features of each image.
        convolutions, layer_norm: arguments of the `CNN` of each image.

    Raises:
        SpecError: the spec is malformed, or an image too small for the convolutions.
        ConfigError: a convolution is malformed.
    """
    specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(feature_spec(obs_spec)))
    leaves: dict[str, LeafEncoder] = {}
    for path, spec in specs.items():
        if spec.num is not None:
            leaves[path] = OneHotEncoder(spec.num.ravel().tolist())
        elif _is_image(spec, convolutions):
            leaves[path] = CNN(
                spec.dim,
                convolutions=convolutions,
                out_features=image_features,
                layer_norm=layer_norm,
            )
        else:
            leaves[path] = FlatEncoder(spec.dim)
    return leaves[""] if "" in leaves else NestEncoder(leaves)


def image_axes(
    spec: ArraySpec, convolutions: Sequence[Sequence[int]] = NATURE
) -> tuple[int, int] | None:
    """Returns the axes of height and width, counted from the end; None if a part is no image.

    Args:
        spec: spec of the part, without axes of a batch.
        convolutions: those of the `CNN` of each image.
    """
    if spec.num is not None or not _is_image(spec, convolutions):
        return None
    return (-3, -2) if _has_channels_last(spec.dim) else (-2, -1)


def _has_channels_last(shape: Sequence[int]) -> bool:
    first, _, third = ((1,) * (3 - len(shape)) + tuple(shape))[-3:]
    return third < first


def _is_image(spec: ArraySpec, convolutions: Sequence[Sequence[int]]) -> bool:
    """Returns True if two of the last three axes are large; without channels only for uint8."""
    least = _least_side(_checked(convolutions) or NATURE)
    large = [size >= least for size in spec.dim[-3:]]
    if len(spec.dim) == 2:
        return all(large) and spec.dtype == "uint8"
    return len(spec.dim) in (3, 4) and sum(large) >= 2


def _least_side(convolutions: Sequence[Sequence[int]]) -> int:
    """Returns the smallest side of an image, in pixels, of which convolutions leave a pixel."""
    side = 1
    for _, kernel, stride in reversed(convolutions):
        side = (side - 1) * stride + kernel
    return side


def _to_float(x: torch.Tensor) -> torch.Tensor:
    return x.float().mul_(BYTE_SCALE) if x.dtype == torch.uint8 else x.float()


def _checked(convolutions: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    for each in convolutions:
        whole = isinstance(each, Sequence) and all(isinstance(x, int) and x > 0 for x in each)
        if not whole or len(each) != 3:
            raise ConfigError(
                f"learner_config.model.convolutions has {each}, expected three whole numbers of 1"
                " or more: [channels, kernel, stride]"
            )
    return convolutions
