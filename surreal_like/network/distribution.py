"""Distributions over actions: small classes over tensors with any leading axes `[...]`.

Each draws actions and computes their log-probabilities. Its `columns` are tensors from which the
same distribution can be rebuilt; they are sent with experience.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import nn
from torch.nn import functional

from surreal_like.data.spec import is_bounded, parse_action_spec
from surreal_like.errors import SpecError


class ActionScale(nn.Module):
    """Converts between actions of the environment and positions within their bounds.

    Positions are from -1 to 1, or from 0 to 1. It has no parameters and nothing to save.

    Args:
        action_spec: action spec from the environment config, continuous and bounded on all sides.
        device: device of the tensors.
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


_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)
# Keeps a uniform distribution's mode, 0 / 0, in the middle.
_SMALL = 1e-6
# An action of exactly 1 has an infinite argument; this is the largest float32 below 1.
_BELOW_1 = 1.0 - 2.0**-24


class Distribution(Protocol):
    """Distribution of a policy's actions, given observations."""

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws actions `[..., *action]`, without gradient."""
        ...

    def mode(self) -> torch.Tensor:
        """Returns the most likely actions, used without exploration."""
        ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities `[...]` of actions `[..., *action]`, or log-densities."""
        ...

    def entropy(self) -> torch.Tensor:
        """Returns the entropy `[...]` [nats]."""
        ...

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other) `[...]` [nats]; 0 if both are equal, else positive."""
        ...

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns name -> `[..., n]`, the argument of `of` of the head that made it."""
        ...


UnitT = TypeVar("UnitT", bound=Distribution)


class Categorical:
    """One of A actions: `logits` `[..., A]` may be unnormalised; actions are int64 `[...]`."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        self.log_probs = functional.log_softmax(logits, -1)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws by an exponential race: each action's rate is its probability."""
        waits = torch.empty_like(self.log_probs).exponential_(generator=generator)
        return (self.log_probs.detach().exp() / waits).argmax(-1)

    def mode(self) -> torch.Tensor:
        """Returns the first one of the most likely actions."""
        return self.logits.argmax(-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities of actions `[...]`."""
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """Returns the entropy, from 0 to log A."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other)."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns the logits."""
        return {"logits": self.logits}


class MultiCategorical:
    """Several independent choices; `logits` `[..., sum(nums)]`, actions int64 `[..., choices]`.

    `nums` is the number of actions of each choice.
    """

    def __init__(self, logits: torch.Tensor, nums: Sequence[int]) -> None:
        self.logits = logits
        self.choices = [Categorical(each) for each in logits.split_with_sizes(list(nums), -1)]

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws each choice."""
        return torch.stack([each.sample(generator) for each in self.choices], -1)

    def mode(self) -> torch.Tensor:
        """Returns the most likely action of each choice."""
        return torch.stack([each.mode() for each in self.choices], -1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the sum over the choices."""
        parts = zip(self.choices, actions.unbind(-1), strict=True)
        return torch.stack([each.log_prob(taken) for each, taken in parts]).sum(0)

    def entropy(self) -> torch.Tensor:
        """Returns the sum over the choices."""
        return torch.stack([each.entropy() for each in self.choices]).sum(0)

    def kl(self, other: Self) -> torch.Tensor:
        """Returns the sum over the choices."""
        pairs = zip(self.choices, other.choices, strict=True)
        return torch.stack([mine.kl(theirs) for mine, theirs in pairs]).sum(0)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns the concatenated logits of all choices."""
        return {"logits": self.logits}


class Gaussian:
    """Independent normal distributions: `mean` and `log_std` `[..., D]`, actions `[..., D]`."""

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.expand_as(mean)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws without gradient; `draw` has one."""
        return self.draw(generator).detach()

    def draw(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws with gradient of mean and standard deviation: Kingma and Welling 2014."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> torch.Tensor:
        """Returns the mean."""
        return self.mean

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the sum over D of the log-densities."""
        distance = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * distance.square() - self.log_std - _HALF_LOG_TAU).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Returns the entropy; negative for small standard deviations."""
        return (self.log_std + 0.5 + _HALF_LOG_TAU).sum(-1)

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other)."""
        precision = (-2.0 * other.log_std).exp()
        spread = (2.0 * self.log_std).exp() + (self.mean - other.mean).square()
        return (other.log_std - self.log_std + 0.5 * (spread * precision - 1.0)).sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns mean and log standard deviation."""
        return {"mean": self.mean, "log_std": self.log_std}


class SquashedGaussian:
    """The hyperbolic tangent of a Gaussian: actions `[..., D]` between -1 and 1.

    Haarnoja et al. 2018 (Soft Actor-Critic), appendix C.
    """

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self.gaussian = Gaussian(mean, log_std)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws without gradient."""
        return self.gaussian.sample(generator).tanh()

    def draw(self, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws actions `[..., D]` with their log-probabilities `[...]`, both with gradient."""
        before = self.gaussian.draw(generator)
        return before.tanh(), self.gaussian.log_prob(before) - _log_slope(before).sum(-1)

    def mode(self) -> torch.Tensor:
        """Returns tanh of the mean: the median in each dimension."""
        return self.gaussian.mean.tanh()

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities of actions from -1 to 1; the ends count as next to the end."""
        before = torch.atanh(actions.clamp(-_BELOW_1, _BELOW_1))
        return self.gaussian.log_prob(before) - _log_slope(before).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Estimates the entropy, which has no closed form, from one draw; with gradient."""
        return -self.draw()[1]

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other), that of the Gaussians: both are squashed by one function."""
        return self.gaussian.kl(other.gaussian)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns the columns of the Gaussian."""
        return self.gaussian.columns()


class Beta:
    """Independent Beta distributions: actions `[..., D]` from 0 to 1.

    Chou et al. 2017, Improving Stochastic Policy Gradients in Continuous Control with Deep
    Reinforcement Learning using the Beta Distribution.

    Args:
        alpha, beta: `[..., D]`, at least 1: then the density has one peak.
    """

    def __init__(self, alpha: torch.Tensor, beta: torch.Tensor) -> None:
        self.alpha = alpha
        self.beta = beta

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws by two gamma variables, without gradient."""
        one, other = (
            torch._standard_gamma(each.detach(), generator) for each in (self.alpha, self.beta)
        )
        return (one / (one + other)).clamp(1.0 - _BELOW_1, _BELOW_1)

    def mode(self) -> torch.Tensor:
        """Returns the most likely actions; the middle of a uniform distribution."""
        return (self.alpha - 1.0 + _SMALL) / (self.alpha + self.beta - 2.0 + 2.0 * _SMALL)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the sum over D of the log-densities; the ends count as next to the end."""
        inside = actions.clamp(1.0 - _BELOW_1, _BELOW_1)
        powers = (self.alpha - 1.0) * inside.log() + (self.beta - 1.0) * torch.log1p(-inside)
        return (powers - self._log_norm()).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Returns the entropy; 0 for the uniform distribution, else negative."""
        total = self.alpha + self.beta
        each = (
            self._log_norm()
            - (self.alpha - 1.0) * self.alpha.digamma()
            - (self.beta - 1.0) * self.beta.digamma()
            + (total - 2.0) * total.digamma()
        )
        return each.sum(-1)

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other)."""
        alphas, betas = self.alpha - other.alpha, self.beta - other.beta
        each = (
            other._log_norm()
            - self._log_norm()
            + alphas * self.alpha.digamma()
            + betas * self.beta.digamma()
            - (alphas + betas) * (self.alpha + self.beta).digamma()
        )
        return each.sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns alpha and beta."""
        return {"alpha": self.alpha, "beta": self.beta}

    def _log_norm(self) -> torch.Tensor:
        """Returns the logarithm of the Beta function."""
        return self.alpha.lgamma() + self.beta.lgamma() - (self.alpha + self.beta).lgamma()


class Bounded(Generic[UnitT]):
    """A distribution over a unit box, whose actions `[..., D]` are scaled to those of bounds.

    Log-probabilities, entropies and divergences are those in the unit box.
    """

    def __init__(self, unit: UnitT, scale: ActionScale) -> None:
        self.unit = unit
        self._scale = scale

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws without gradient."""
        return self._scale.forward(self.unit.sample(generator))

    def mode(self) -> torch.Tensor:
        """Returns the mode of the unit box, scaled."""
        return self._scale.forward(self.unit.mode())

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the log-densities of the positions of actions."""
        return self.unit.log_prob(self._scale.inverse(actions))

    def entropy(self) -> torch.Tensor:
        """Returns the entropy in the unit box."""
        return self.unit.entropy()

    def kl(self, other: Self) -> torch.Tensor:
        """Returns KL(self, other)."""
        return self.unit.kl(other.unit)

    def columns(self) -> dict[str, torch.Tensor]:
        """Returns the columns of the distribution over the unit box."""
        return self.unit.columns()


def _log_slope(x: torch.Tensor) -> torch.Tensor:
    """Computes log(1 - tanh(x)**2) without the rounding to log 0 for abs(x) above about 9."""
    return 2.0 * (_LOG_2 - x - functional.softplus(-2.0 * x))
