"""The correction of gradients for the updates since their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from surreal_like.dataflow.flow import Operator
from surreal_like.dataflow.items import Gradients

if TYPE_CHECKING:
    from surreal_like.learner.updates import Updates

# Added to the mean of squares: Zheng et al. 2017, section 5.
_EPSILON = 1e-7
_MEAN_DECAY = 0.95


def compensate(
    gradient: torch.Tensor,
    now: torch.Tensor,
    then: torch.Tensor,
    weight: float | torch.Tensor,
) -> torch.Tensor:
    """Returns a gradient of earlier parameters, corrected to those of now; all `[P]`.

    Zheng et al. 2017, Asynchronous Stochastic Gradient Descent with Delay Compensation, equation
    10: the outer product of the gradient stands for the Hessian, of which the diagonal is used.
    """
    return gradient + weight * gradient * gradient * (now - then)


def compensate_delay(
    learner: Updates, weight: float, *, adaptive: bool = False, history: int = 20
) -> Operator:
    """Returns an operator that corrects gradients for the updates since their parameters.

    Where these parameters are no longer kept, the gradient stays as it is and is counted in the
    metric `uncompensated`.

    Args:
        learner: the parameters are those of now.
        weight: 0: no correction.
        adaptive: divides the weight by the root of a running mean of squared gradients.
        history: number of published versions whose parameters are kept.

    Raises:
        ValueError: a negative weight, or a history below 1.
    """
    if weight < 0 or history < 1:
        raise ValueError(
            f"compensate_delay(weight={weight:g}, history={history}): expected a weight of 0 or "
            "more and a history of 1 or more"
        )
    compensation = learner.keep(
        "delay_compensation", DelayCompensation(learner, weight, adaptive, history)
    )
    words = f"{weight:g}, adaptive" if adaptive else f"{weight:g}"
    return Operator(f"compensate_delay({words})", compensation, learner=learner)


class DelayCompensation:
    """The operator of `compensate_delay`, with its state."""

    def __init__(self, learner: Updates, weight: float, adaptive: bool, history: int) -> None:
        self._learner = learner
        self._weight = weight
        self._adaptive = adaptive
        self._most = history
        self._parameters: dict[int, torch.Tensor] = {}
        self._mean_square: torch.Tensor | None = None
        self.uncompensated = 0

    @torch.no_grad()
    def __call__(self, item: Gradients) -> Gradients:
        """Corrects a gradient in place of the old one."""
        optimizers = self._learner.optimizers
        now = torch.cat([optimizers[name].parameters for name in item.names])
        # Nothing has changed the parameters since the newest publication.
        self._remember(self._learner.version, now)
        then = self._parameters.get(item.version)
        if then is None:
            self.uncompensated += 1
        else:
            item.flat = compensate(item.flat, now, then, self._weight_of(item.flat))
        item.metrics["uncompensated"] = self.uncompensated
        return item

    def _weight_of(self, gradient: torch.Tensor) -> float | torch.Tensor:
        if not self._adaptive:
            return self._weight
        if self._mean_square is None:
            self._mean_square = torch.zeros_like(gradient)
        share = 1.0 - _MEAN_DECAY
        self._mean_square.mul_(_MEAN_DECAY).addcmul_(gradient, gradient, value=share)
        return self._weight / (self._mean_square + _EPSILON).sqrt()

    def _remember(self, version: int, parameters: torch.Tensor) -> None:
        if version not in self._parameters:
            self._parameters[version] = parameters
            while len(self._parameters) > self._most:
                del self._parameters[min(self._parameters)]

    def state_dict(self) -> dict[str, Any]:
        """Returns the kept parameters, the mean of squares and the count."""
        return {
            "parameters": dict(self._parameters),
            "mean_square": self._mean_square,
            "uncompensated": self.uncompensated,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self._parameters = dict(state["parameters"])
        self._mean_square = state["mean_square"]
        self.uncompensated = int(state["uncompensated"])
