"""Noisy linear layers: exploration by learned noise in the weights. Fortunato et al. 2018."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional


class Noise:
    """Draws the noise of all noisy layers of a network at once, anew at each `draw`.

    Attributes:
        generator: source of the noise; None: there is none, and the layers compute their means.
    """

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None
        self._width = 0
        self._factors: torch.Tensor | None = None

    def reserve(self, size: int) -> int:
        """Adds a layer with `size` factors per row; returns the position of the first."""
        self._width += size
        return self._width - size

    def draw(self, leading: Sequence[int]) -> None:
        """Draws the factors `[*leading, all layers]`: sign(e) sqrt|e| of normal e."""
        self._factors = None
        if self.generator is not None:
            e = torch.empty(*leading, self._width, device=self.generator.device)
            self._factors = factors(e.normal_(generator=self.generator))

    def of(self, start: int, sizes: Sequence[int]) -> tuple[torch.Tensor, ...] | None:
        """Returns the newest factors of a layer, `[..., size]` each; None without noise."""
        if self._factors is None:
            return None
        return self._factors.narrow(-1, start, sum(sizes)).split_with_sizes(list(sizes), -1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copied network draws its own noise, from the same source: never the same noise twice.
        copied = type(self)()
        copied.generator, copied._width = self.generator, self._width
        memo[id(self)] = copied
        return copied


def factors(e: torch.Tensor) -> torch.Tensor:
    """Returns sign(e) sqrt|e|, elementwise; equation 10 uses products of two of them."""
    return e.abs().sqrt_().copysign_(e)


class NoisyLinear(nn.Module):
    """A linear layer whose weights and biases have factorised Gaussian noise, one per row.

    Section 3.1 (b) and the initialization of section 3.2. The noise of each row of the batch is its
    own, which the factors make cheap: no weight matrix per row is built.

    Args:
        in_features, out_features: widths.
        sigma: initial deviation of the noise, divided by the root of `in_features`.
        noise: shared by the layers of a network; a layer without one computes means.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        sigma: float = 0.5,
        noise: Noise | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma * bound))
        self._noise = Noise() if noise is None else noise
        self._sizes = (in_features, out_features)
        self._start = self._noise.reserve(in_features + out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[..., in_features]` to `[..., out_features]`, with the newest noise."""
        drawn = self._noise.of(self._start, self._sizes)
        if drawn is None:
            return functional.linear(x, self.weight, self.bias)
        return self.with_noise(x, *drawn)

    def with_noise(
        self, x: torch.Tensor, factors_in: torch.Tensor, factors_out: torch.Tensor
    ) -> torch.Tensor:
        """Maps `[..., in_features]`, with factors of the same shape and of that of the result."""
        mean = functional.linear(x, self.weight, self.bias)
        noise = functional.linear(x * factors_in, self.weight_sigma, self.bias_sigma)
        return torch.addcmul(mean, factors_out, noise)
