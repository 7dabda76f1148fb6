"""PopArt: learns values in units of their own deviation, without changing any value meanwhile."""

from __future__ import annotations

import torch

from surreal_like.network.head import ScaledValueHead


class ValueScale:
    """Counts all value targets, and keeps the values while their unit changes.

    At each update the layer is rewritten: van Hasselt et al. 2016, Learning values across many
    orders of magnitude, equation 5. The state is in the head, and saved with it.

    Args:
        head: computes values; it is changed in place.
    """

    def __init__(self, head: ScaledValueHead) -> None:
        self._head = head

    @property
    def mu(self) -> float:
        """Mean of the targets; 0 before the first update."""
        return float(self._head.moments.mean)

    @property
    def sigma(self) -> float:
        """Deviation of the targets, at least 1e-4; 1 before the first update."""
        return 1.0 / float(self._head.moments.scale)

    @torch.no_grad()
    def update(self, targets: torch.Tensor) -> None:
        """Adds targets `[M]` to the moments and rewrites the layer; ignores them if not finite."""
        if not len(targets):
            return
        mu, sigma = self.mu, self.sigma
        self._head.moments.update(targets)
        weight, bias = self._head.weight, self._head.bias
        weight.copy_(weight.double() * (sigma / self.sigma))
        bias.copy_((bias.double() * sigma + mu - self.mu) / self.sigma)
