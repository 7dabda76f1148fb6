"""Noisy linear layers: exploration by learned noise in the weights. Fortunato et al. 2018."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional

# The least int64: words from there on are 64 random bits.
_LEAST = -(1 << 63)


class Noise:
    """Draws the noise of all noisy layers of a network at once, anew at each `draw`.

    Attributes:
        generator: source of the noise; None: there is none, and the layers compute their means.
    """

    def __init__(self) -> None:
        self.generator: torch.Generator | None = None
        self._sizes: list[int] = []
        self._factors: tuple[torch.Tensor, ...] = ()
        self._table = torch.empty(0)

    def reserve(self, *sizes: int) -> int:
        """Adds vectors of so many factors per row; returns the place of the first vector."""
        self._sizes += sizes
        return len(self._sizes) - len(sizes)

    def draw(self, leading: Sequence[int]) -> None:
        """Draws the factors `[*leading, size]` of all vectors: sign(e) sqrt|e| of normal e."""
        self._factors = ()
        if self.generator is None:
            return
        shape = (*leading, sum(self._sizes))
        count = math.prod(shape)
        if not self._table.numel() or self._table.device != self.generator.device:
            self._table = factor_quantiles().to(self.generator.device)
        # One call for all layers: the cost of small operations is that of their calls. 16 random
        # bits choose a quantile, in half of the time that a normal number and its root take.
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=self.generator.device)
        words.random_(_LEAST, None, generator=self.generator)
        places = words.view(torch.uint16)[:count].int()
        drawn = self._table.index_select(0, places).view(shape)
        self._factors = drawn.split_with_sizes(self._sizes, -1)

    def of(self, place: int) -> tuple[torch.Tensor, ...]:
        """Returns the newest factors of a vector and of the next; without noise nothing."""
        return self._factors[place : place + 2]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copied network draws its own noise, from the same source: never the same noise twice.
        copied = type(self)()
        copied.generator, copied._sizes = self.generator, [*self._sizes]
        copied._table = self._table
        memo[id(self)] = copied
        return copied


def factors(e: torch.Tensor) -> torch.Tensor:
    """Returns sign(e) sqrt|e|, elementwise; equation 10 uses products of two of them."""
    return e.abs().sqrt_().copysign_(e)


def factor_quantiles() -> torch.Tensor:
    """Returns the factors of 65,536 normal numbers of equal probability, ascending, float32."""
    middles = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
    return factors(torch.special.ndtri(middles)).float()


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
        self._place = self._noise.reserve(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[..., in_features]` to `[..., out_features]`, with the newest noise."""
        if drawn := self._noise.of(self._place):
            return self.with_noise(x, *drawn)
        return functional.linear(x, self.weight, self.bias)

    def with_noise(
        self, x: torch.Tensor, factors_in: torch.Tensor, factors_out: torch.Tensor
    ) -> torch.Tensor:
        """Maps `[..., in_features]`, with factors of the same shape and of that of the result."""
        own: dict[str, Any] = self._parameters  # faster than attributes of a module
        mean = functional.linear(x, own["weight"], own["bias"])
        noise = functional.linear(x * factors_in, own["weight_sigma"], own["bias_sigma"])
        return mean.addcmul_(factors_out, noise)
