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
        self._sizes: list[int] = []
        self._factors: tuple[torch.Tensor, ...] = ()

    def reserve(self, *sizes: int) -> int:
        """Adds vectors of so many factors per row; returns the place of the first vector."""
        self._sizes += sizes
        return len(self._sizes) - len(sizes)

    def draw(self, leading: Sequence[int]) -> None:
        """Draws the factors `[*leading, size]` of all vectors: sign(e) sqrt|e| of normal e."""
        self._factors = ()
        if self.generator is not None:
            e = torch.empty(*leading, sum(self._sizes), device=self.generator.device)
            # One call for all layers: the cost of small operations is that of their calls.
            self._factors = factors(e.normal_(generator=self.generator)).split_with_sizes(
                self._sizes, -1
            )

    def of(self, place: int) -> torch.Tensor | None:
        """Returns the newest factors of a vector, `[..., size]`; None without noise."""
        return self._factors[place] if self._factors else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A copied network draws its own noise, from the same source: never the same noise twice.
        copied = type(self)()
        copied.generator, copied._sizes = self.generator, [*self._sizes]
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
        self._place = self._noise.reserve(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[..., in_features]` to `[..., out_features]`, with the newest noise."""
        factors_in, factors_out = self._noise.of(self._place), self._noise.of(self._place + 1)
        if factors_in is None or factors_out is None:
            return functional.linear(x, self.weight, self.bias)
        return self.with_noise(x, factors_in, factors_out)

    def with_noise(
        self, x: torch.Tensor, factors_in: torch.Tensor, factors_out: torch.Tensor
    ) -> torch.Tensor:
        """Maps `[..., in_features]`, with factors of the same shape and of that of the result."""
        own: dict[str, Any] = self._parameters  # faster than attributes of a module
        mean = functional.linear(x, own["weight"], own["bias"])
        noise = functional.linear(x * factors_in, own["weight_sigma"], own["bias_sigma"])
        return torch.addcmul(mean, factors_out, noise)
