"""Recurrent cores between torso and heads: LSTM and GRU over unrolls of several episodes.

The state is one tensor `[B, state_size]`, so that it can be a column of experience. It is reset to
zero where an episode begins, also inside an unroll.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from session.errors import ConfigError


class Core(nn.Module):
    """Carries a state from row to row; `out_features` is the width of its output."""

    def __init__(self, size: int, state_size: int) -> None:
        super().__init__()
        if size < 1:
            raise ConfigError(f"a core of {size} units: expected 1 or more")
        self.out_features = size
        self.state_size = state_size

    def initial_state(self, n: int) -> torch.Tensor:
        """Returns the state of `n` streams at an episode's start, float32 `[n, state_size]`."""
        return torch.zeros(n, self.state_size, device=next(self.parameters()).device)

    def forward(
        self, features: torch.Tensor, state: torch.Tensor, first: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Processes an unroll row by row.

        Args:
            features: float32 `[T, B, in_features]`.
            state: state before the first row, `[B, state_size]`.
            first: bool `[T, B]`, True where an episode begins: the state is reset there.

        Returns:
            Input of the heads, `[T, B, out_features]`, and the state after the last row.
        """
        goes_on = (~first).to(features.dtype).unsqueeze(-1)
        outs = []
        for row, kept in zip(features.unbind(), goes_on.unbind(), strict=True):
            out, state = self.step(row, state * kept)
            outs.append(out)
        return torch.stack(outs), state

    @abstractmethod
    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Maps a row of features `[B, in_features]` and a state to the output and next state."""


class LSTMCore(Core):
    """Hochreiter and Schmidhuber 1997, with forget gates: hidden and cell state side by side."""

    def __init__(self, in_features: int, size: int) -> None:
        super().__init__(size, 2 * size)
        self.cell = nn.LSTMCell(in_features, size)

    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Processes one row."""
        hidden, cell = self.cell(features, state.chunk(2, -1))
        return hidden, torch.cat((hidden, cell), -1)


class GRUCore(Core):
    """Cho et al. 2014: one gate less; the output is the state."""

    def __init__(self, in_features: int, size: int) -> None:
        super().__init__(size, size)
        self.cell = nn.GRUCell(in_features, size)

    def step(self, features: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Processes one row."""
        hidden = self.cell(features, state)
        return hidden, hidden


def make_core(kind: str, in_features: int, size: int) -> LSTMCore | GRUCore:
    """Builds a core of a `kind`, lstm or gru, with `size` units. Raises ConfigError for another."""
    if kind == "lstm":
        return LSTMCore(in_features, size)
    if kind == "gru":
        return GRUCore(in_features, size)
    raise ConfigError(f"core is {kind!r}, expected lstm or gru")
