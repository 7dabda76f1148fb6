"""Encodes a nest of observations as one flat float tensor, part by part, by the spec.

| spec of the part | encoding |
|---|---|
| `num` is given | one-hot: `num` values of each element, or a list with the number of each |
| an image of at least 36 x 36 pixels | the Nature CNN |
| anything else | flattened |

An image has channels first or last, or none (two dimensions, uint8); or it is a stack of images,
whose frames become channels.

Parts of type uint8 are scaled to [0, 1] on their device, so that they are transferred as single
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from session import nest
from surreal_like.data.spec import ArraySpec, parse_obs_spec
from surreal_like.errors import SpecError

# In smaller images the Nature CNN has no pixel left after its third convolution.
_MIN_IMAGE_SIDE = 36
_BYTE_SCALE = 1.0 / 255.0


class FlatEncoder(nn.Module):
    """Flattens `[B, *shape]` of any dtype to float32 `[B, size]`; bytes are scaled to [0, 1]."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.out_features = math.prod(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns float32 `[B, size]`."""
        return _to_float(x if x.dim() == 2 else x.reshape(len(x), -1))


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
        index = x.reshape(len(x), -1).long() + self.offsets
        zeros = torch.zeros(len(x), self.out_features, device=x.device)
        return zeros.scatter_(1, index, 1.0)


class NatureCNN(nn.Module):
    """Three convolutions and one layer of Mnih et al. 2015 (Human-level control, Methods).

    Input: images of any dtype, `[B, height, width, channels]` or `[B, channels, height, width]`:
        the shorter one of the outer axes is the channels. An axis of stacked frames may precede
        either; `[B, height, width]` has one channel. Output: float32 `[B, out_features]`. Raises
        SpecError if the image is smaller than 36 x 36.
    """

    def __init__(self, shape: Sequence[int], *, out_features: int = 512) -> None:
        super().__init__()
        *frames, first, second, third = (1,) * (3 - len(shape)) + tuple(shape)
        self.channels_last = third < first
        height, width = (first, second) if self.channels_last else (second, third)
        self.channels = math.prod(frames) * (third if self.channels_last else first)
        if min(height, width) < _MIN_IMAGE_SIDE:
            raise SpecError(
                f"an image of {list(shape)} is too small for the Nature CNN,"
                f" which needs {_MIN_IMAGE_SIDE} x {_MIN_IMAGE_SIDE} pixels"
            )
        self.layers = nn.Sequential(
            nn.Conv2d(self.channels, 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * _pixels_left(height) * _pixels_left(width), out_features),
            nn.ReLU(),
        )
        self.out_features = out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the features, float32 `[B, out_features]`."""
        if self.channels_last:
            x = x.movedim(-1, -3)
        if x.dim() != 4:
            x = x.reshape(len(x), self.channels, *x.shape[-2:])
        x = _to_float(x)
        if torch.is_grad_enabled():
            # In the backward pass, convolutions take 25 % less time with channels last.
            x = x.contiguous(memory_format=torch.channels_last)
        features: torch.Tensor = self.layers(x)
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


LeafEncoder = FlatEncoder | OneHotEncoder | NatureCNN


def make_encoder(
    obs_spec: Mapping[str, Any], *, image_features: int = 512
) -> LeafEncoder | NestEncoder:
    """Builds the module that encodes a nest of observations `[B, ...]` as float32 `[B,
    out_features]`.

    `obs_spec` is from the environment config. Raises SpecError if it is malformed.
    """
    specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec))
    leaves = {path: _leaf_encoder(spec, image_features) for path, spec in specs.items()}
    return leaves[""] if "" in leaves else NestEncoder(leaves)


def _leaf_encoder(spec: ArraySpec, image_features: int) -> LeafEncoder:
    if spec.num is not None:
        return OneHotEncoder(spec.num.ravel().tolist())
    if _is_image(spec):
        return NatureCNN(spec.dim, out_features=image_features)
    return FlatEncoder(spec.dim)


def _is_image(spec: ArraySpec) -> bool:
    """Returns True if two of the last three axes are large; without channels only for uint8."""
    large = [size >= _MIN_IMAGE_SIDE for size in spec.dim[-3:]]
    if len(spec.dim) == 2:
        return all(large) and spec.dtype == "uint8"
    return len(spec.dim) in (3, 4) and sum(large) >= 2


def _to_float(x: torch.Tensor) -> torch.Tensor:
    return x.float().mul_(_BYTE_SCALE) if x.dtype == torch.uint8 else x.float()


def _pixels_left(side: int) -> int:
    """Returns the pixels of a side after the three convolutions."""
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        side = (side - kernel) // stride + 1
    return side
