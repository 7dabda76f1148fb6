"""The optimiser of a learner: Adam on one flat tensor, with a clip and a guard against NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from surreal_like.network.flat import flatten_parameters


class Optimizer:
    """Moves a module down the gradient of a loss: Kingma and Ba 2015, algorithm 1.

    Args:
        module: on the device where it learns; its parameters become views of one flat tensor.
        learning_rate: the step size.
        max_grad_norm: longer gradients are scaled to this norm; 0 leaves them as they are.
        epsilon: added to the root of the second moment.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float,
        max_grad_norm: float = 0.0,
        epsilon: float = 1e-8,
    ) -> None:
        self.nan_updates = 0
        self.skipped = False
        self.learning_rate = learning_rate
        self._max_grad_norm = max_grad_norm
        parameter, self._gradient = flatten_parameters(module)
        self._adam = torch.optim.Adam([parameter], lr=learning_rate, eps=epsilon, fused=True)

    def step(self, loss: torch.Tensor) -> float:
        """Makes one update from a scalar loss; gives the norm of the gradient, before any clip.

        If the loss or the gradient is not finite nothing is changed, the moments of Adam included:
        then `skipped` is true until the next step, and `nan_updates` rises.
        """
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.linalg.vector_norm(self._gradient)
        # One number for both: Huber's gradient of an infinite error is finite, its loss is not.
        self.skipped = not math.isfinite((norm + loss.detach()).item())
        if self.skipped:
            self.nan_updates += 1
            return math.nan
        grad_norm = float(norm)
        if 0.0 < self._max_grad_norm < grad_norm:
            self._gradient.mul_(self._max_grad_norm / grad_norm)
        self._adam.step()
        return grad_norm

    def state_dict(self) -> dict[str, Any]:
        """The moments of Adam and the number of updates that were skipped."""
        return {"adam": self._adam.state_dict(), "nan_updates": self.nan_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; the learning rate stays the one of the config."""
        self._adam.load_state_dict(dict(state["adam"]))
        for group in self._adam.param_groups:
            group["lr"] = self.learning_rate
        self.nan_updates = int(state["nan_updates"])
