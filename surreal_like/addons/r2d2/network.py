"""Values of the actions by a recurrent network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from session import nest
from session.config.key import FROM_1, Key
from session.errors import ConfigError
from surreal_like.network.q_network import HEAD_CONFIG, QNetwork
from surreal_like.network.recurrent import MEMORY_INPUTS, make_memory

# The keys of `learner_config.model` for a RecurrentQNetwork.
RECURRENT_Q_CONFIG = HEAD_CONFIG | {
    "memory": Key("lstm", "Recurrent core between torso and head: lstm or gru."),
    "memory_size": Key(64, "Units of the recurrent core.", within=FROM_1),
    "memory_inputs": MEMORY_INPUTS,
}


class RecurrentQNetwork(QNetwork):
    """Computes the values of all actions from sequences of observations.

    Args:
        obs_spec, num_actions, dueling: as of :class:`QNetwork`.
        model: the keys of `RECURRENT_Q_CONFIG`.

    Attributes:
        core: recurrent core between torso and head.

    Raises:
        ConfigError: a setting is out of range, or there is no memory.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        num_actions: int,
        *,
        model: Mapping[str, Any],
        dueling: bool = False,
    ) -> None:
        super().__init__(obs_spec, num_actions, model={**model, "noisy": 0.0}, dueling=dueling)

    def make_core(self, model: Mapping[str, Any]) -> int:
        """Builds the recurrent core; returns its width."""
        if not model["memory"]:
            raise ConfigError(
                "learner_config.model.memory is empty, but values of sequences need a memory: set "
                "it to lstm or gru, or algorithm to dqn"
            )
        actions = {"type": "discrete", "dim": [self._shape[0]]}
        self.core = make_memory(model, self.torso.out_features, actions)
        return self.core.out_features

    def forward(self, obs: Any) -> torch.Tensor:
        """Raises ValueError: single observations are not sufficient."""
        raise ValueError("a network with a memory looks at sequences: call unroll() or act()")

    def unroll(
        self, obs: Any, state: torch.Tensor, first: torch.Tensor, **before: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns Q `[T, B, num_actions]` of sequences, and the state after their last row.

        Args:
            obs: nest of tensors `[T, B, ...]`.
            state: state before the first row, `[B, state_size]`.
            first: bool `[T, B]`, True where an episode begins.
            before: `actions` and `rewards` of an :class:`InformedCore`, with `memory_inputs`.
        """
        with self.parameter_lock:
            features, state = self._remember(obs, state, first, **before)
            q_values: torch.Tensor = self.head(features.flatten(0, 1))
        return self.mask_values(q_values.view(*first.shape, -1), obs), state

    def burn_in(
        self, obs: Any, state: torch.Tensor, first: torch.Tensor, **before: torch.Tensor
    ) -> torch.Tensor:
        """Returns the state after sequences, `[B, state_size]`; arguments as of `unroll`."""
        if first.shape[0] == 0:
            return state
        with self.parameter_lock:
            return self._remember(obs, state, first, **before)[1]

    def _remember(
        self, obs: Any, state: torch.Tensor, first: torch.Tensor, **before: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = nest.map(lambda x: x.flatten(0, 1), self.seen(obs))
        features: torch.Tensor = self.torso(rows)
        found: tuple[torch.Tensor, torch.Tensor] = self.core(
            features.view(*first.shape, -1), state, first, **before
        )
        return found

    def act(
        self,
        obs: Any,
        state: torch.Tensor,
        first: torch.Tensor,
        rewards: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns Q `[N, num_actions]` and the next state, at one row of each stream.

        Args:
            obs: nest of tensors `[N, ...]`.
            state: `[N, state_size]`.
            first: bool `[N]`, True where an episode begins.
            rewards: rewards before the rows, `[N]`, where the core reads them.
        """
        row = nest.map(lambda x: x.unsqueeze(0), obs)
        before = {} if rewards is None else {"rewards": rewards.unsqueeze(0)}
        q_values, state = self.unroll(row, state, first.unsqueeze(0), **before)
        return q_values[0], state
