"""Recurrent cores between torso and heads: LSTM and GRU over unrolls of several episodes.

The state is one tensor `[B, state_size]`, so that it can be a column of experience. It is reset to
zero where an episode begins, also inside an unroll.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from session.config.key import Key
from session.errors import ConfigError
from surreal_like.data.spec import parse_action_spec

# Values of `learner_config.model.memory_inputs`.
INPUTS = ("action", "reward")
MEMORY_INPUTS = Key(
    [],
    "Further inputs of the recurrent core, of the step before: action, reward; zeros where an "
    "episode begins.",
    one_of=INPUTS,
)


class Core(nn.Module):
    """Carries a state from row to row; `out_features` is the width of its output."""

    inputs: tuple[str, ...] = ()

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

    def remember(self, state: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Returns the state: this core does not get its actions."""
        return state

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


class InformedCore(nn.Module):
    """A core that also gets the action and the reward before each row.

    An agent chooses its action after the core has run. So the state is that of the core, followed
    by the code of the newest action, which :meth:`remember` adds: code that passes the state on
    from step to step needs no change. The reward comes from outside, with the row.

    Args:
        core: takes `features`, the code of the action, and the reward, side by side.
        action_spec: action spec from the environment config.
        inputs: some of `INPUTS`.
    """

    def __init__(self, core: Core, action_spec: Mapping[str, Any], inputs: Sequence[str]) -> None:
        super().__init__()
        self.core = core
        self.inputs = tuple(inputs)
        self.out_features = core.out_features
        self._size = core.state_size
        self._spec = parse_action_spec(action_spec)
        self.state_size = self._size + code_size(action_spec, self.inputs)

    def initial_state(self, n: int) -> torch.Tensor:
        """Returns the state of `n` streams at an episode's start, float32 `[n, state_size]`."""
        return torch.zeros(n, self.state_size, device=next(self.parameters()).device)

    def forward(
        self,
        features: torch.Tensor,
        state: torch.Tensor,
        first: torch.Tensor,
        actions: torch.Tensor | None = None,
        rewards: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Processes an unroll as :class:`Core` does; returns the same.

        Args:
            features, state, first: as of :class:`Core`.
            actions: actions of the rows, `[T, B, ...]`, of the last row or not; None for one row
                whose action is not known yet.
            rewards: rewards before the rows, `[T, B]`.
        """
        goes_on = (~first).to(features.dtype).unsqueeze(-1)
        rows, parts = features.shape[0], [features]
        codes = state[:, self._size :].unsqueeze(0)
        if "action" in self.inputs:
            if actions is not None:
                codes = torch.cat((codes, self.encode(actions, 2)))
            parts.append(codes[:rows] * goes_on)
        if "reward" in self.inputs:
            if rewards is None:
                raise ValueError("model.memory_inputs has reward: give the rewards before the rows")
            parts.append(rewards.unsqueeze(-1) * goes_on)
        outs, after = self.core(torch.cat(parts, -1), state[:, : self._size], first)
        newest = codes[rows] if codes.shape[0] > rows else torch.zeros_like(codes[0])
        return outs, torch.cat((after, newest), -1)

    def remember(self, state: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Returns a state `[N, state_size]` with the code of the actions `[N, ...]` just chosen."""
        if "action" not in self.inputs:
            return state
        return torch.cat((state[:, : self._size], self.encode(actions, 1)), -1)

    def encode(self, actions: torch.Tensor, lead: int) -> torch.Tensor:
        """Returns float32 codes `[..., size]`: discrete actions one-hot, others as they are.

        Args:
            actions: actions as agents choose them.
            lead: number of axes before those of one action.
        """
        spec = self._spec
        if spec.type == "continuous":
            return actions.unsqueeze(-1) if not spec.dim else actions.flatten(lead)
        columns = [actions] if spec.type == "discrete" else actions.unbind(-1)
        codes = [
            (column.unsqueeze(-1) == torch.arange(size, device=actions.device)).float()
            for column, size in zip(columns, spec.dim, strict=True)
        ]
        return torch.cat(codes, -1)


def code_size(action_spec: Mapping[str, Any], inputs: Sequence[str]) -> int:
    """Returns the width of the code of an action; 0 if it is no input."""
    if "action" not in inputs:
        return 0
    spec = parse_action_spec(action_spec)
    return math.prod(spec.dim) if spec.type == "continuous" else sum(spec.dim)


def reads_rewards(learner_config: Mapping[str, Any]) -> bool:
    """Returns True if the memory of an experiment gets the reward before each row."""
    return "reward" in ((learner_config.get("model") or {}).get("memory_inputs") or ())


def check_inputs(model: Mapping[str, Any]) -> None:
    """Raises ConfigError for inputs of a memory that a model does not have."""
    inputs = model.get("memory_inputs")
    if inputs and not model.get("memory"):
        raise ConfigError(
            f"learner_config.model.memory_inputs is {list(inputs)}, but model.memory is empty: set "
            "it to lstm or gru, or memory_inputs to []"
        )


def make_memory(
    model: Mapping[str, Any], in_features: int, action_spec: Mapping[str, Any]
) -> Core | InformedCore:
    """Builds the core of a `model`, with its `memory_inputs`.

    Raises:
        ConfigError: an unknown kind of core.
    """
    inputs = model.get("memory_inputs") or ()
    width = in_features + code_size(action_spec, inputs) + ("reward" in inputs)
    core = make_core(model["memory"], width, model["memory_size"])
    return InformedCore(core, action_spec, inputs) if inputs else core


def make_core(kind: str, in_features: int, size: int) -> LSTMCore | GRUCore:
    """Builds a core of a `kind`, lstm or gru, with `size` units. Raises ConfigError for another."""
    if kind == "lstm":
        return LSTMCore(in_features, size)
    if kind == "gru":
        return GRUCore(in_features, size)
    raise ConfigError(f"core is {kind!r}, expected lstm or gru")
