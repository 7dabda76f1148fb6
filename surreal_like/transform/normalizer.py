"""Normalizes observations to mean 0 and deviation 1, by the moments of all learned rows.

Only the learner updates the moments; they are sent as buffers with the parameters, so agents and
evaluators use the learner's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from session import nest
from surreal_like.data.group import group
from surreal_like.data.masks import feature_spec
from surreal_like.data.spec import ArraySpec, parse_obs_spec

_EPSILON = 1e-8
_CLIP = 10.0


@torch.no_grad()
def moments_of(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns moments of rows `[M, *shape]`, float64.

    `count` `[]`, `mean` and the sums of squared distances from it, `squares`, both `[*shape]`.
    """
    rows = x.double()
    count = torch.tensor(float(rows.shape[0]), dtype=torch.float64, device=x.device)
    return {"count": count, "mean": rows.mean(0), "squares": count * rows.var(0, correction=0)}


class Moments(nn.Module):
    """Mean and variance of every element `[*shape]` over all rows so far: Chan et al. 1979.

    Before the first update it only clips to +-10.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.count: torch.Tensor
        self.mean: torch.Tensor
        self.variance: torch.Tensor
        self.shift: torch.Tensor
        self.scale: torch.Tensor
        # float64, because small differences are added to large sums; results are float32.
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `[..., *shape]` normalised, within +-10."""
        return ((x - self.shift) * self.scale).clamp(-_CLIP, _CLIP)

    def update(self, x: torch.Tensor) -> None:
        """Adds rows `[M, *shape]`, those of all ranks; rows that are not finite are ignored."""
        own = moments_of(x)
        if group().size == 1:
            self.merge(own)
            return
        flat = torch.cat([own["count"][None], own["mean"].flatten(), own["squares"].flatten()])
        for each in group().gather(flat.cpu().numpy(), "moments"):
            number, *rest = flat.new_tensor(each).tensor_split([1, 1 + self.mean.numel()])
            mean, squares = (part.view(self.mean.shape) for part in rest)
            self.merge({"count": number[0], "mean": mean, "squares": squares})

    @torch.no_grad()
    def merge(self, moments: Mapping[str, torch.Tensor]) -> None:
        """Adds the rows of some `moments_of`; ignores them if they are not finite."""
        count, mean, squares = (moments[name] for name in ("count", "mean", "squares"))
        if not bool(torch.isfinite(mean).all() & torch.isfinite(squares).all()) or not count:
            return
        total = self.count + count
        apart = mean - self.mean
        spread = self.count * self.variance + squares
        spread += apart.square() * self.count * count / total
        self.mean += apart * count / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + _EPSILON).rsqrt())


class Normalizer(nn.Module):
    """Normalises the float32 parts of observations; images, bytes and counts are not changed.

    Args:
        obs_spec: observations spec from the environment config.
    """

    def __init__(self, obs_spec: Mapping[str, Any]) -> None:
        super().__init__()
        specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(feature_spec(obs_spec)))
        self._paths = tuple(specs)
        self.parts = nn.ModuleList(
            Moments(spec.dim) if spec.dtype.kind == "f" else nn.Identity()
            for spec in specs.values()
        )

    def forward(self, obs: Any) -> Any:
        """Returns the same nest without a mask of actions, leaves `[..., *shape]`.

        Parts that only value functions see may be left out.
        """
        # By path: the parts of an observation may be in another order than those of its spec.
        leaves = nest.flatten(obs)
        return nest.unflatten(
            {path: part(leaves[path]) for path, part in self._by_path() if path in leaves}
        )

    def update(self, obs: Any) -> None:
        """Adds a nest of rows `[M, ...]`."""
        leaves = nest.flatten(obs)
        for path, part in self._by_path():
            if isinstance(part, Moments):
                part.update(leaves[path])

    def moments(self, obs: Any) -> dict[str, dict[str, torch.Tensor]]:
        """Returns the `moments_of` a nest of rows `[M, ...]`, for each normalised part."""
        leaves = nest.flatten(obs)
        return {
            f"part_{number}": moments_of(leaves[path])
            for number, (path, part) in enumerate(self._by_path())
            if isinstance(part, Moments)
        }

    def merge(self, moments: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Adds the rows of a result of `moments`."""
        for number, part in enumerate(self.parts):
            if isinstance(part, Moments):
                part.merge(moments[f"part_{number}"])

    def _by_path(self) -> Iterator[tuple[str, nn.Module]]:
        return zip(self._paths, self.parts, strict=True)
