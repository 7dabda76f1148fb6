"""What a policy says of its actions: small classes over tensors with any leading axes `[...]`.

Each draws actions, knows their log-probabilities, and is written down as `columns`, tensors from
which the same policy is made again: that is what travels with experience.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch.nn import functional

_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)
# An action of exactly 1 has an infinite argument; this is the float32 just below.
_BELOW_1 = 1.0 - 2.0**-24


class Distribution(Protocol):
    """A policy's actions, given observations."""

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Actions `[..., *action]`, drawn; without gradient."""
        ...

    def mode(self) -> torch.Tensor:
        """The likeliest actions, what is played without exploration."""
        ...

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """`[...]`, of actions `[..., *action]`; of densities where they are continuous."""
        ...

    def entropy(self) -> torch.Tensor:
        """`[...]` [nats]."""
        ...

    def kl(self, other: Self) -> torch.Tensor:
        """KL(self, other) `[...]` [nats]: 0 where both are equal, else more."""
        ...

    def columns(self) -> dict[str, torch.Tensor]:
        """Name -> `[..., n]`: what `of` of the head that gave it takes."""
        ...


class Categorical:
    """One of A actions: `logits` `[..., A]` need not be normalised; actions are int64 `[...]`."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits
        self.log_probs = functional.log_softmax(logits, -1)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws by a race of exponential clocks, each as fast as its action is likely."""
        waits = torch.empty_like(self.log_probs).exponential_(generator=generator)
        return (self.log_probs.detach().exp() / waits).argmax(-1)

    def mode(self) -> torch.Tensor:
        """The first one of the likeliest."""
        return self.logits.argmax(-1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Of actions `[...]`."""
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """From 0 to log A."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: Self) -> torch.Tensor:
        """KL(self, other)."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """The logits."""
        return {"logits": self.logits}


class MultiCategorical:
    """Several independent choices; `logits` `[..., sum(nums)]`, actions int64 `[..., choices]`.

    `nums` has the number of actions of each choice.
    """

    def __init__(self, logits: torch.Tensor, nums: Sequence[int]) -> None:
        self.logits = logits
        self.choices = [Categorical(each) for each in logits.split_with_sizes(list(nums), -1)]

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws each choice."""
        return torch.stack([each.sample(generator) for each in self.choices], -1)

    def mode(self) -> torch.Tensor:
        """The likeliest of each choice."""
        return torch.stack([each.mode() for each in self.choices], -1)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """The sum over the choices."""
        parts = zip(self.choices, actions.unbind(-1), strict=True)
        return torch.stack([each.log_prob(taken) for each, taken in parts]).sum(0)

    def entropy(self) -> torch.Tensor:
        """The sum over the choices."""
        return torch.stack([each.entropy() for each in self.choices]).sum(0)

    def kl(self, other: Self) -> torch.Tensor:
        """The sum over the choices."""
        pairs = zip(self.choices, other.choices, strict=True)
        return torch.stack([mine.kl(theirs) for mine, theirs in pairs]).sum(0)

    def columns(self) -> dict[str, torch.Tensor]:
        """The logits of all choices, side by side."""
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
        """Draws so that the gradient reaches mean and deviation: Kingma and Welling 2014."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> torch.Tensor:
        """The mean."""
        return self.mean

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """The sum over D of the logarithms of densities."""
        distance = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * distance.square() - self.log_std - _HALF_LOG_TAU).sum(-1)

    def entropy(self) -> torch.Tensor:
        """Below 0 where the deviation is small."""
        return (self.log_std + 0.5 + _HALF_LOG_TAU).sum(-1)

    def kl(self, other: Self) -> torch.Tensor:
        """KL(self, other)."""
        precision = (-2.0 * other.log_std).exp()
        spread = (2.0 * self.log_std).exp() + (self.mean - other.mean).square()
        return (other.log_std - self.log_std + 0.5 * (spread * precision - 1.0)).sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """Mean and logarithm of the standard deviation."""
        return {"mean": self.mean, "log_std": self.log_std}


class SquashedGaussian:
    """The hyperbolic tangent of a Gaussian: actions `[..., D]` between -1 and 1.

    Haarnoja et al. 2018 (Soft Actor-Critic), appendix C. Its entropy has no closed form: take minus
    the log-probability of what `draw` gives.
    """

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self.gaussian = Gaussian(mean, log_std)

    def sample(self, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draws without gradient."""
        return self.gaussian.sample(generator).tanh()

    def draw(self, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions `[..., D]` and their log-probabilities `[...]`, both with gradient."""
        before = self.gaussian.draw(generator)
        return before.tanh(), self.gaussian.log_prob(before) - _log_slope(before).sum(-1)

    def mode(self) -> torch.Tensor:
        """The tangent of the mean: what half of all draws are below, in each dimension."""
        return self.gaussian.mean.tanh()

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Of actions from -1 to 1; those at the very end are taken for the number next to it."""
        before = torch.atanh(actions.clamp(-_BELOW_1, _BELOW_1))
        return self.gaussian.log_prob(before) - _log_slope(before).sum(-1)

    def columns(self) -> dict[str, torch.Tensor]:
        """Those of the Gaussian."""
        return self.gaussian.columns()


def _log_slope(x: torch.Tensor) -> torch.Tensor:
    """log(1 - tanh(x)**2), which itself rounds to log 0 beyond 9 or so, without that loss."""
    return 2.0 * (_LOG_2 - x - functional.softplus(-2.0 * x))
