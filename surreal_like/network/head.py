"""Heads: from features `[B, in_features]` to what an algorithm needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from surreal_like.network.torso import MLP


class QHead(nn.Linear):
    """One linear layer that gives the value of each action, `[B, num_actions]`."""


class DuelingHead(nn.Module):
    """Q from a state value and advantages whose mean is taken off: Wang et al. 2016, equation 9.

    Each of the two streams may have hidden layers of its own.
    """

    def __init__(
        self,
        in_features: int,
        num_actions: int,
        *,
        hidden_sizes: Sequence[int] = (),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.value = _stream(in_features, hidden_sizes, 1, activation)
        self.advantage = _stream(in_features, hidden_sizes, num_actions, activation)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Gives Q, `[B, num_actions]`."""
        advantage = self.advantage(features)
        q_values: torch.Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return q_values


def _stream(
    in_features: int, hidden_sizes: Sequence[int], out_features: int, activation: str
) -> nn.Module:
    hidden = MLP(in_features, hidden_sizes, activation=activation)
    return nn.Sequential(hidden, nn.Linear(hidden.out_features, out_features))
