"""The optimiser of a learner: Adam on one flat tensor, with a clip and a guard against NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from surreal_like.network.flat import flatten_parameters


class Adam:
    """Adam on one flat tensor: Kingma and Ba 2015, algorithm 1, with the order of section 2.

    The same as `torch.optim.Adam`, which for one small tensor costs several times as much in Python
    and at its first step imports the compiler of torch, a second that a run would wait for.

    Args:
        parameter: moved in place, of any shape.
        learning_rate: the step size; may be changed between two steps.
        betas: decay of the first and of the second moment.
        epsilon: added to the root of the second moment.
    """

    def __init__(
        self,
        parameter: torch.Tensor,
        *,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.learning_rate = learning_rate
        self._parameter = parameter
        self._betas = betas
        self._epsilon = epsilon
        self._steps = 0
        self._moment_1 = torch.zeros_like(parameter)
        self._moment_2 = torch.zeros_like(parameter)
        self._root = torch.empty_like(parameter)

    @torch.no_grad()
    def step(self, gradient: torch.Tensor) -> None:
        """Moves the parameter by a gradient of its shape."""
        beta_1, beta_2 = self._betas
        self._steps += 1
        self._moment_1.lerp_(gradient, 1 - beta_1)
        self._moment_2.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
        correction_1 = 1 - beta_1**self._steps
        correction_2 = 1 - beta_2**self._steps
        torch.sqrt(self._moment_2, out=self._root)
        self._root.div_(math.sqrt(correction_2)).add_(self._epsilon)
        self._parameter.addcdiv_(
            self._moment_1, self._root, value=-self.learning_rate / correction_1
        )

    def state_dict(self) -> dict[str, Any]:
        """The number of steps and both moments."""
        return {"steps": self._steps, "moment_1": self._moment_1, "moment_2": self._moment_2}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._steps = int(state["steps"])
        self._moment_1.copy_(state["moment_1"])
        self._moment_2.copy_(state["moment_2"])


class Optimizer:
    """Moves a module down the gradient of a loss, with Adam.

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
        self._adam = Adam(parameter.detach(), learning_rate=learning_rate, epsilon=epsilon)

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
        self._adam.step(self._gradient)
        return grad_norm

    def state_dict(self) -> dict[str, Any]:
        """The moments of Adam and the number of updates that were skipped."""
        return {"adam": self._adam.state_dict(), "nan_updates": self.nan_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; the learning rate stays the one of the config."""
        self._adam.load_state_dict(state["adam"])
        self.nan_updates = int(state["nan_updates"])
