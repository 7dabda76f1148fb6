"""Between the environment's continuous actions and a unit box."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from surreal_like.data.spec import is_bounded, parse_action_spec
from surreal_like.errors import SpecError


class ActionScale(nn.Module):
    """Converts between actions of the environment and positions within their bounds.

    Positions are from -1 to 1, or from 0 to 1. It has no parameters and nothing to save.

    Args:
        action_spec: from the environment config, continuous and bounded on all sides.
        device: of the tensors.
        from_zero: positions are from 0 to 1.

    Attributes:
        size: number of elements of an action.

    Raises:
        SpecError: actions have no bounds, or low is not below high.
    """

    def __init__(
        self,
        action_spec: Mapping[str, Any],
        device: torch.device | str = "cpu",
        *,
        from_zero: bool = False,
    ) -> None:
        super().__init__()
        spec = parse_action_spec(action_spec)
        low, high = spec.inner_bounds
        if low is None or high is None or not is_bounded(spec.array):
            raise SpecError(
                f"actions {list(spec.dim)} need finite bounds, but env_config.action_spec has low "
                f"{None if low is None else low.tolist()} and high "
                f"{None if high is None else high.tolist()}"
            )
        if not (low < high).all():
            raise SpecError(f"actions have low {low.tolist()}, not below high {high.tolist()}")
        self.size = math.prod(spec.dim)
        self._dim = spec.dim
        first, last = (torch.tensor(end.reshape(-1), device=device) for end in (low, high))
        self._first: torch.Tensor
        self._last: torch.Tensor
        self.register_buffer("_first", first, persistent=False)
        self.register_buffer("_last", last, persistent=False)
        self._offset: torch.Tensor
        self._factor: torch.Tensor
        offset, factor = (first, last - first) if from_zero else _middle_and_half(first, last)
        self.register_buffer("_offset", offset, persistent=False)
        self.register_buffer("_factor", factor, persistent=False)

    def forward(self, unit: torch.Tensor) -> torch.Tensor:
        """Returns actions of the environment as vectors `[..., size]`, of positions likewise.

        They lie inside the bounds as configured, which float32 may not hold.
        """
        return (self._offset + self._factor * unit).clamp(self._first, self._last)

    def inverse(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the positions `[..., size]` of actions `[..., size]`."""
        return (actions - self._offset) / self._factor

    def to_env(self, unit: torch.Tensor) -> torch.Tensor:
        """Returns the environment's actions, float32 `[B, *dim]`, of positions `[B, size]`."""
        return self.forward(unit).reshape(-1, *self._dim)

    def to_unit(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the positions `[B, size]` of the environment's actions `[B, *dim]`."""
        return self.inverse(actions.reshape(-1, self.size))


def _middle_and_half(first: torch.Tensor, last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (first + last) / 2, (last - first) / 2
