"""PopArt: learns values in units of their own spread, without changing any value meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from surreal_like.transform.normalizer import Moments

# Of van Hasselt et al. 2016: targets that hardly differ must not give a huge weight.
_LEAST_SIGMA = 1e-4


class ValueScale:
    """Mean and deviation of all value targets so far; the head's outputs are in these units.

    At each change the head is rewritten such that no value changes: van Hasselt et al. 2016,
    Learning values across many orders of magnitude, equation 5.

    Args:
        head: linear layer that computes normalized values; it is changed in place.

    Attributes:
        mu: mean of the targets, float64 scalar; 0 before the first update.
        sigma: their deviation, float64 scalar, at least 1e-4; 1 before the first update.
    """

    def __init__(self, head: nn.Linear) -> None:
        self._head = head
        self._moments = Moments(()).to(head.weight.device)
        self._read_moments()

    def to_value(self, normalized: torch.Tensor) -> torch.Tensor:
        """Returns values `[...]` of the head's outputs `[...]`."""
        return (normalized * self.sigma + self.mu).to(normalized.dtype)

    def to_normalized(self, values: torch.Tensor) -> torch.Tensor:
        """Returns values `[...]` in the units of the head's outputs."""
        return ((values - self.mu) / self.sigma).to(values.dtype)

    @torch.no_grad()
    def update(self, targets: torch.Tensor) -> None:
        """Adds targets `[M]` to the moments and rewrites the head; ignores them if not finite."""
        if not len(targets):
            return
        mu, sigma = self.mu, self.sigma
        self._moments.update(targets)
        self._read_moments()
        weight, bias = self._head.weight, self._head.bias
        weight.copy_(weight.double() * (sigma / self.sigma))
        bias.copy_((bias.double() * sigma + mu - self.mu) / self.sigma)

    def _read_moments(self) -> None:
        # Copies: `Moments` changes its own in place.
        self.mu = self._moments.mean.clone()
        self.sigma = self._moments.variance.sqrt().clamp(min=_LEAST_SIGMA)

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments; the head is saved with its network."""
        return {"moments": self._moments.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`; the head must be restored too."""
        self._moments.load_state_dict(state["moments"])
        self._read_moments()
