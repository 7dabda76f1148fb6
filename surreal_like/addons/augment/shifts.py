"""Random shifts of images: Yarats et al. 2021, Image Augmentation Is All You Need (DrQ)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from session import nest
from session.errors import ConfigError
from surreal_like.data.batch import Batch
from surreal_like.data.masks import feature_spec
from surreal_like.data.spec import ArraySpec, parse_obs_spec
from surreal_like.dataflow.flow import Operator
from surreal_like.dataflow.items import axis_of
from surreal_like.network.encoder import NATURE, image_axes

if TYPE_CHECKING:
    from surreal_like.learner.learner import Learner

_NAME = "random_shifts"
_ENDS = (-2, -1)


def shift_images(images: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Returns images cut out of themselves at an offset, with the pixels of their edges repeated.

    Args:
        images: `[B, C, height, width]`, of any type.
        offsets: down and to the right, int64 `[2, B]`, pixels; 0 leaves an image as it is.
    """
    rows, columns = (
        (torch.arange(side, device=images.device) + each.unsqueeze(1)).clamp(0, side - 1)
        for side, each in zip(images.shape[2:], offsets, strict=True)
    )
    # Twice along one axis takes a third of the time of indices of all axes at once.
    moved = images.gather(2, rows[:, None, :, None].expand_as(images))
    return moved.gather(3, columns[:, None, None, :].expand_as(images))


def add_random_shifts(learner: Learner, pixels: int = 4) -> Operator:
    """Returns an operator that shifts the images in observations at random.

    Each row has an offset of its own, and each part `obs` and `obs_next` of it; all rows of an
    unroll or a sequence, and all frames of a stack, have the same one. Works behind a source of a
    plan.

    Args:
        learner: the learner whose generator draws the offsets.
        pixels: largest offset in each direction.

    Raises:
        ConfigError: there is no image, or `pixels` is no whole number of 1 or more.
    """
    if not isinstance(pixels, int) or isinstance(pixels, bool) or pixels < 1:
        raise ConfigError(f"pixels of {_NAME} is {pixels!r}, expected a whole number of 1 or more")
    convolutions = (learner.learner_config.get("model") or {}).get("convolutions") or NATURE
    spec = learner.env_config.obs_spec
    specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(feature_spec(spec)))
    axes = {path: image_axes(part, convolutions) for path, part in specs.items()}
    images = {path: each for path, each in axes.items() if each is not None}
    if not images:
        raise ConfigError(
            f"{_NAME} shifts images, but env_config.obs_spec has none, of at least as many pixels "
            "as learner_config.model.convolutions needs: leave the part out"
        )

    def shift(batch: Batch) -> Batch:
        axis, generator = axis_of(batch), learner.generator
        for name in [each for each in ("obs", "obs_next") if each in batch]:
            leaves = nest.flatten(batch[name])
            for path, sides in images.items():
                x = leaves[path].movedim(axis, 0).movedim(sides, _ENDS)
                drawn = (2, len(x))
                offsets = torch.randint(
                    -pixels, pixels + 1, drawn, generator=generator, device=generator.device
                )
                flat = x.reshape(len(x), -1, *x.shape[-2:])
                moved = shift_images(flat, offsets.to(x.device)).view(x.shape)
                leaves[path] = moved.movedim(_ENDS, sides).movedim(0, axis)
            batch[name] = nest.unflatten(leaves)
        return batch

    return Operator(f"{_NAME}({pixels})", shift, learner=learner)
