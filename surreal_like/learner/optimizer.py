"""Optimizers of a learner: a rule on one flat tensor, gradient clipping, a NaN guard, names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import nn

from session.errors import ConfigError
from surreal_like.data.group import group
from surreal_like.exploration.schedule import Progress, Schedule, make_schedule
from surreal_like.network.flat import flatten_parameters

# With a shorter average, the variance of RAdam's adaptive step is not finite.
_LEAST_LENGTH = 5.0
# Steps of Adam between two looks for denormal numbers in its moments.
_LOOK_EVERY = 100
# Least mean of squares of RMSProp, which is nothing beside its epsilon.
_LEAST_SQUARE = 1e-30


class Adam:
    """Adam on one flat tensor: Kingma and Ba 2015, algorithm 1, with the order of section 2.

    Computes the same as `torch.optim.Adam`, which needs several times as much Python time for one
    small tensor, and imports torch's compiler at its first step: 1 s of waiting for a run.

    Args:
        parameter: updated in place, of any shape.
        learning_rate: step size; may be changed between two steps.
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
        # Detached: its operations need no graph, and to switch that off takes longer than one.
        self._parameter = parameter.detach()
        self._betas = betas
        self._epsilon = epsilon
        self._steps = 0
        self._moment_1 = torch.zeros_like(self._parameter)
        self._moment_2 = torch.zeros_like(self._parameter)
        self._root = torch.empty_like(self._parameter)

    def step(self, gradient: torch.Tensor) -> None:
        """Updates the parameter from a gradient of its shape."""
        beta_1, beta_2 = self._betas
        self._average(gradient)
        correction_1 = 1 - beta_1**self._steps
        correction_2 = 1 - beta_2**self._steps
        torch.sqrt(self._moment_2, out=self._root)
        self._root.div_(math.sqrt(correction_2)).add_(self._epsilon)
        self._parameter.addcdiv_(
            self._moment_1, self._root, value=-self.learning_rate / correction_1
        )

    def _average(self, gradient: torch.Tensor) -> None:
        """Adds a gradient to both moments.

        Where a gradient stays 0, as behind a unit that is never active, moments shrink to denormal
        numbers, where rounding keeps them. A CPU is many times slower with these: they become 0.
        """
        beta_1, beta_2 = self._betas
        self._steps += 1
        self._moment_1.lerp_(gradient, 1 - beta_1)
        self._moment_2.mul_(beta_2).addcmul_(gradient, gradient, value=1 - beta_2)
        if self._steps % _LOOK_EVERY == 0:
            for moment in (self._moment_1, self._moment_2):
                moment.mul_(moment.abs() >= torch.finfo(moment.dtype).tiny)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of steps and both moments."""
        return {"steps": self._steps, "moment_1": self._moment_1, "moment_2": self._moment_2}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self._steps = int(state["steps"])
        self._moment_1.copy_(state["moment_1"])
        self._moment_2.copy_(state["moment_2"])


class RAdam(Adam):
    """Adam whose early steps are scaled down, while its second moment is known from few gradients.

    Liu et al. 2020, On the Variance of the Adaptive Learning Rate and Beyond, algorithm 2. Computes
    the same as `torch.optim.RAdam`; arguments as of :class:`Adam`.
    """

    def step(self, gradient: torch.Tensor) -> None:
        """Updates the parameter from a gradient of its shape."""
        beta_1, beta_2 = self._betas
        self._average(gradient)
        rate = self.learning_rate / (1 - beta_1**self._steps)
        # Length of the average that the second moment is, at its end and now.
        longest = 2 / (1 - beta_2) - 1
        decayed = beta_2**self._steps
        length = longest - 2 * self._steps * decayed / (1 - decayed)
        if length <= _LEAST_LENGTH:
            self._parameter.add_(self._moment_1, alpha=-rate)
            return
        least, most = (length - 4) * (length - 2) * longest, (longest - 4) * (longest - 2) * length
        torch.sqrt(self._moment_2, out=self._root).add_(self._epsilon)
        share = math.sqrt(least / most * (1 - decayed))
        self._parameter.addcdiv_(self._moment_1, self._root, value=-rate * share)


class RMSPropTF:
    """RMSProp as TensorFlow 1 computes it, on one flat tensor: A3C and IMPALA were tuned for it.

    The mean of squares begins at 1, not at 0, and `epsilon` is added inside the root: with their
    epsilon of 0.1 the step differs from that of `torch.optim.RMSprop`.

    Args:
        parameter: updated in place, of any shape.
        learning_rate: step size; may be changed between two steps.
        decay: decay of the mean of squares.
        epsilon: added to the mean of squares.
    """

    def __init__(
        self,
        parameter: torch.Tensor,
        *,
        learning_rate: float,
        decay: float = 0.99,
        epsilon: float = 0.1,
    ) -> None:
        self.learning_rate = learning_rate
        self._parameter = parameter.detach()
        self._decay = decay
        self._epsilon = epsilon
        self._mean_square = torch.ones_like(self._parameter)

    def step(self, gradient: torch.Tensor) -> None:
        """Updates the parameter from a gradient of its shape."""
        share = 1.0 - self._decay
        self._mean_square.mul_(self._decay).addcmul_(gradient, gradient, value=share)
        # Smaller ones would become denormal, as the moments of Adam.
        self._mean_square.clamp_(min=_LEAST_SQUARE)
        root = (self._mean_square + self._epsilon).sqrt_()
        self._parameter.addcdiv_(gradient, root, value=-self.learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """Returns the mean of squares."""
        return {"mean_square": self._mean_square}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self._mean_square.copy_(state["mean_square"])


_RULES: Mapping[str, type[Adam | RMSPropTF]] = MappingProxyType(
    {"adam": Adam, "radam": RAdam, "rmsprop_tf": RMSPropTF}
)


class StepSize(Protocol):
    """A step size at a point of the run: a `Schedule`, or an `AdaptiveStep`."""

    def at(self, progress: Progress) -> float:
        """Returns the step size."""
        ...


class Optimizer:
    """Updates a module by the gradient of a loss.

    Args:
        module: module on its device; its parameters become views of one flat tensor.
        learning_rate: step size; a schedule: `begin` sets that of now.
        max_grad_norm: gradients with a larger norm are scaled to this norm; 0: never.
        epsilon: epsilon of the rule.
        rule: adam, radam or rmsprop_tf.
        metrics: names of the metrics of the norm and of the step size; empty: not reported.

    Attributes:
        skipped: True if the newest update was not finite.
        nan_updates: number of such updates.
        size: number of parameters.
        parameters: all of them, `[size]`; the optimizer updates them in place.
        schedule: gives the step size; may be replaced.
        change: called with each gradient `[size]` before it is clipped; returns the one to use.

    Raises:
        ConfigError: the rule does not exist.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float = 0.0,
        epsilon: float = 1e-8,
        rule: str = "adam",
        metrics: tuple[str, str] = ("grad_norm", "learning_rate"),
    ) -> None:
        if rule not in _RULES:
            raise ConfigError(f"optimizer is {rule!r}, expected one of {', '.join(_RULES)}")
        self.nan_updates = 0
        self.skipped = False
        self._max_grad_norm = max_grad_norm
        self._name = rule
        self.norm_name, self.rate_name = metrics
        if not isinstance(learning_rate, Schedule):
            learning_rate = make_schedule(learning_rate, "learning_rate", least=0.0)
        self.schedule: StepSize = learning_rate
        self.change: Callable[[torch.Tensor], torch.Tensor] | None = None
        parameter, self._gradient = flatten_parameters(module)
        self.size = parameter.numel()
        self.parameters = parameter.detach()
        rate = learning_rate.value(0)
        self._rule = _RULES[rule](self.parameters, learning_rate=rate, epsilon=epsilon)

    def begin(self, progress: Progress) -> None:
        """Sets the step size of this point of the run."""
        self._rule.learning_rate = self.schedule.at(progress)

    @property
    def learning_rate(self) -> float:
        """Step size of the next update; may be set between two updates."""
        return self._rule.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._rule.learning_rate = value

    def step(self, loss: torch.Tensor, rows: int = 1) -> float:
        """Makes one update from a scalar loss; returns the norm of the gradient before clipping.

        If the loss or the gradient is not finite, nothing changes, including the moments of the
        rule: `skipped` is True until the next step, and `nan_updates` rises by 1.

        Args:
            loss: a mean over rows.
            rows: their number. In a group of learners, loss and gradient are the means over the
                rows of all ranks; without rows a rank adds nothing to them.
        """
        return self._update(self._differentiate(loss, rows))

    def compute(self, loss: torch.Tensor, rows: int = 1) -> torch.Tensor:
        """Returns the gradient of a scalar loss, `[size]`, for `apply`; NaN unless it is finite.

        `rows` as in `step`.
        """
        loss = self._differentiate(loss, rows)
        gradient = self._gradient.clone()
        return gradient if math.isfinite(loss.item()) else gradient.fill_(math.nan)

    def clip(self, gradient: torch.Tensor) -> float:
        """Applies `change` to a gradient `[size]`, and scales it to `max_grad_norm`; in place.

        Returns:
            The norm before the scaling; a gradient whose norm is not finite is not scaled.
        """
        if self.change is not None:
            gradient.copy_(self.change(gradient))
        norm = float(torch.linalg.vector_norm(gradient))
        if math.isfinite(norm):
            self._scale(gradient, norm)
        return norm

    def apply(self, gradient: torch.Tensor, *, clipped: bool = False) -> float:
        """Makes one update from a gradient `[size]`, as `step` does after it has computed it.

        Args:
            gradient: remains as it is.
            clipped: True if `clip` was called with it before: elsewhere, or before a mean.

        Returns:
            The norm of the gradient before clipping; NaN if it was not finite.

        Raises:
            ValueError: another length; names both.
        """
        if gradient.shape != self._gradient.shape:
            raise ValueError(
                f"a gradient is {list(gradient.shape)}, but the parameters are "
                f"{list(self._gradient.shape)}"
            )
        self._gradient.copy_(gradient)
        return self._update(clipped=clipped)

    def _differentiate(self, loss: torch.Tensor, rows: int) -> torch.Tensor:
        """Computes the gradient; returns the loss, both of the whole group."""
        self._gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach() if group().size == 1 else self._reduce(loss.detach(), rows)

    def _reduce(self, loss: torch.Tensor, rows: int) -> torch.Tensor:
        """Makes the gradient the mean over all ranks; returns the mean loss.

        The loss goes with it: if it is not finite on one rank, all ranks skip the update.
        """
        numbers = self._gradient.new_zeros(self.size + 2)
        if rows:
            numbers[: self.size] = self._gradient
            numbers[self.size] = loss
            numbers[self.size + 1] = 1.0
            numbers *= rows
        total = numbers.new_tensor(group().sum(numbers.cpu().numpy(), "gradient"))
        # Without rows on any rank, both are 0, as they are for a learner alone.
        total[:-1] /= total[-1].clamp(min=1.0)
        self._gradient.copy_(total[: self.size])
        return total[self.size]

    def _scale(self, gradient: torch.Tensor, norm: float) -> None:
        if 0.0 < self._max_grad_norm < norm:
            gradient.mul_(self._max_grad_norm / norm)

    def _update(self, loss: torch.Tensor | None = None, *, clipped: bool = False) -> float:
        if self.change is not None and not clipped:
            self._gradient.copy_(self.change(self._gradient))
        found = torch.linalg.vector_norm(self._gradient)
        if loss is not None:
            # Huber's gradient of an infinite error is finite, its loss is not: 0 times it is NaN.
            # One read for both, because each waits until all work that a GPU has is done.
            found = torch.add(found, loss, alpha=0)
        norm: float = found.item()
        self.skipped = not math.isfinite(norm)
        if self.skipped:
            self.nan_updates += 1
            return math.nan
        if not clipped:
            self._scale(self._gradient, norm)
        self._rule.step(self._gradient)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Returns the rule's state under its name, and the number of skipped updates."""
        return {self._name: self._rule.state_dict(), "nan_updates": self.nan_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`; the learning rate remains that of the config."""
        self._rule.load_state_dict(state[self._name])
        self.nan_updates = int(state["nan_updates"])


class Optimizers(dict[str, Optimizer]):
    """Optimizers by name, with their common metrics and their entries in checkpoints."""

    def add(
        self,
        name: str,
        module: nn.Module,
        learning_rate: Mapping[str, Any] | float,
        *,
        where: str = "learner_config.algo.learning_rate",
        **options: Any,
    ) -> Optimizer:
        """Adds an optimizer; see `Learner.add_optimizer`."""
        schedule = make_schedule(learning_rate, where, least=0.0)
        self[name] = Optimizer(module, learning_rate=schedule, **options)
        return self[name]

    def separate_metrics(self) -> None:
        """Puts the name of an optimizer before its metrics that an earlier one has, too."""
        taken: set[str] = set()
        for name, each in self.items():
            each.norm_name = (
                f"{name}/{each.norm_name}" if each.norm_name in taken else each.norm_name
            )
            each.rate_name = (
                f"{name}/{each.rate_name}" if each.rate_name in taken else each.rate_name
            )
            taken |= {each.norm_name, each.rate_name} - {""}

    def begin(self, progress: Progress) -> None:
        """Sets the step sizes of this point of the run."""
        for optimizer in self.values():
            optimizer.begin(progress)

    @property
    def skipped(self) -> float:
        """1 if the newest update of one of them was not finite, otherwise 0."""
        for optimizer in self.values():
            if optimizer.skipped:
                return 1.0
        return 0.0

    def report(self, metrics: dict[str, Any]) -> None:
        """Adds the step sizes, and the number of updates that were not finite."""
        skipped = 0
        for optimizer in self.values():
            skipped += optimizer.nan_updates
            if optimizer.rate_name:
                metrics[optimizer.rate_name] = optimizer.learning_rate
        metrics["nan_updates"] = skipped

    def saveables(self) -> dict[str, Optimizer]:
        """Returns name in checkpoints -> optimizer."""
        return {
            name if name == "optimizer" else f"{name}_optimizer": optimizer
            for name, optimizer in self.items()
        }
