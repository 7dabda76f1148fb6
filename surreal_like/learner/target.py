"""Target networks: slowly updated copies of networks, for bootstrap targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch

from session.errors import ConfigError
from surreal_like.network.module import Module

ModuleT = TypeVar("ModuleT", bound=Module)


class TargetNetwork(Generic[ModuleT]):
    """Follows an online network; call `update` after each of its updates.

    A *hard* target becomes equal to the online network at every `period`th call; a *soft* one moves
    by the share `tau` at every call (Lillicrap et al. 2016, algorithm 1). Buffers are copied
    whenever parameters move. Raises ConfigError for another mode or numbers out of range.
    """

    def __init__(
        self, online: ModuleT, *, mode: str = "hard", period: int = 1, tau: float = 0.005
    ) -> None:
        if mode not in ("hard", "soft"):
            raise ConfigError(f"target mode is {mode!r}, expected hard or soft")
        if period < 1 or not 0.0 < tau <= 1.0:
            raise ConfigError(
                f"a target needs period >= 1 and 0 < tau <= 1, not {period} and {tau}"
            )
        self.module: ModuleT = online.clone().freeze()
        self.updates = 0
        self._soft = mode == "soft"
        self._period = period
        self._tau = tau
        # Listed once: traversing the modules takes longer than updating a small network.
        # Parameters, not their tensors: an optimizer made later may replace the tensors.
        self._ours: list[torch.Tensor] = list(self.module.parameters())
        self._theirs: list[torch.Tensor] = list(online.parameters())
        self._our_buffers = list(self.module.buffers())
        self._their_buffers = list(online.buffers())

    def update(self) -> None:
        """Updates the target, after one update of the online network."""
        self.updates += 1
        if self._soft:
            self._follow_online()
        elif self.updates % self._period == 0:
            self.copy_online()

    # Only where tensors change: to switch gradients off takes longer than to count an update.
    @torch.no_grad()
    def _follow_online(self) -> None:
        torch._foreach_lerp_(self._ours, self._theirs, self._tau)
        self._copy_buffers()

    @torch.no_grad()
    def copy_online(self) -> None:
        """Makes the target equal to the online network now, in any mode."""
        torch._foreach_copy_(self._ours, self._theirs)
        self._copy_buffers()

    def state_dict(self) -> dict[str, Any]:
        """Returns parameters, buffers and the number of updates."""
        return {"module": self.module.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.module.load_state_dict(state["module"])
        self.updates = int(state["updates"])

    def _copy_buffers(self) -> None:
        if self._our_buffers:
            torch._foreach_copy_(self._our_buffers, self._their_buffers)
