"""Followers of an update: target networks, scales of values, adapted step sizes and penalties."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, Key
from session.errors import ConfigError
from surreal_like.data.group import group
from surreal_like.exploration.schedule import Progress
from surreal_like.loss.policy import adapted_kl_coefficient
from surreal_like.network.head import ScaledValueHead
from surreal_like.network.module import Module

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


class TargetNetwork(Generic[ModuleT]):
    """Follows an online network; call `update` after each of its updates.

    Buffers are copied whenever parameters move.

    Args:
        online: network that is followed; `module` is its copy, without gradients.
        mode: `hard`, which copies `online` at each `period`-th call, or `soft`, which moves by the
            share `tau` at each: Lillicrap et al. 2016, algorithm 1.
        period: calls from one copy to the next, 1 or more.
        tau: share of the way to `online`, above 0 and at most 1.

    Raises:
        ConfigError: the mode is another one, or a number is out of range.
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
        # Any module of torch; those of this library are copied while no other thread writes.
        copied = online.clone() if isinstance(online, Module) else copy.deepcopy(online)
        self.module: ModuleT = copied.requires_grad_(False).eval()
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


class ValueScale:
    """Counts all value targets, and keeps the values while their unit changes.

    At each update the layer is rewritten: van Hasselt et al. 2016, Learning values across many
    orders of magnitude, equation 5. The state is in the head, and saved with it.

    Args:
        head: computes values; it is changed in place.
    """

    def __init__(self, head: ScaledValueHead) -> None:
        self._head = head

    @property
    def mu(self) -> float:
        """Mean of the targets; 0 before the first update."""
        return float(self._head.moments.mean)

    @property
    def sigma(self) -> float:
        """Deviation of the targets, at least 1e-4; 1 before the first update."""
        return 1.0 / float(self._head.moments.scale)

    @torch.no_grad()
    def update(self, targets: torch.Tensor) -> None:
        """Adds targets `[M]` to the moments and rewrites the layer; ignores them if not finite.

        A frozen head keeps its unit.
        """
        if not self._head.training or (not len(targets) and group().size == 1):
            return
        mu, sigma = self.mu, self.sigma
        self._head.moments.update(targets)
        weight, bias = self._head.weight, self._head.bias
        weight.copy_(weight.double() * (sigma / self.sigma))
        bias.copy_((bias.double() * sigma + mu - self.mu) / self.sigma)


_FACTOR = 1.5

# The keys of `learner_config.algo.adaptive_learning_rate`.
ADAPTIVE_STEP_CONFIG = Config(
    {
        "kl": Key(
            0.0,
            "Above twice this divergence the step size falls by a factor 1.5, below half of it it "
            "rises by 1.5; 0: the step size is not adapted.",
            unit="nats",
            within=FROM_0,
        ),
        "low": Key(1e-6, "The smallest step size.", within=ABOVE_0),
        "high": Key(1e-2, "The largest step size.", within=ABOVE_0),
    }
)


class AdaptiveStep:
    """Step size, changed after each batch to keep the divergence within a factor 2 of a target.

    Args:
        start: the first step size.
        kl: target of the divergence [nats].
        low, high: bounds of the step size.

    Raises:
        ConfigError: not 0 < low <= start <= high.
    """

    def __init__(self, start: float, *, kl: float, low: float = 1e-6, high: float = 1e-2) -> None:
        if not 0.0 < low <= start <= high:
            where = "learner_config.algo"
            raise ConfigError(
                f"{where}.learning_rate begins at {start}, but {where}.adaptive_learning_rate has "
                f"low {low} and high {high}: expected 0 < low <= learning_rate <= high"
            )
        self.value = start
        self._kl = kl
        self._low = low
        self._high = high

    def at(self, progress: Progress) -> float:
        """Returns the step size, at any point of the run."""
        return self.value

    def adapt(self, kl: float) -> None:
        """Changes the step size after a batch; `kl` is the divergence in its last pass [nats].

        Above twice the target it is divided by 1.5, below half of it multiplied by 1.5. A NaN
        changes nothing.
        """
        if kl > 2.0 * self._kl:
            self.value = max(self._low, self.value / _FACTOR)
        elif kl < 0.5 * self._kl:
            self.value = min(self._high, self.value * _FACTOR)

    def state_dict(self) -> dict[str, Any]:
        """Returns the step size."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.value = float(state["value"])


# The keys of `learner_config.algo.entropy_target`.
ENTROPY_TARGET_CONFIG = Config(
    {
        "value": Key(
            None,
            "Entropy at which the weight of the entropy stays as it is; null: the weight is the "
            "schedule `entropy`.",
            unit="nats",
            optional="_num_",
        ),
        "learning_rate": Key(
            0.01, "Change of the weight's logarithm per nat below the target.", within=FROM_0
        ),
        "low": Key(1e-4, "The smallest weight.", within=ABOVE_0),
        "high": Key(1.0, "The largest weight.", within=ABOVE_0),
    }
)


class EntropyWeight:
    """Weight of the entropy, changed after each batch to keep the entropy near a target.

    Args:
        start: the first weight; it is kept within the bounds, too.
        value: target of the entropy [nats].
        learning_rate: change of the weight's logarithm per nat below the target.
        low, high: bounds of the weight.

    Raises:
        ConfigError: not 0 < low <= high.
    """

    def __init__(
        self,
        start: float,
        *,
        value: float,
        learning_rate: float = 0.01,
        low: float = 1e-4,
        high: float = 1.0,
    ) -> None:
        if not 0.0 < low <= high:
            raise ConfigError(
                f"learner_config.algo.entropy_target has low {low} and high {high}, "
                "expected 0 < low <= high"
            )
        self._target = value
        self._rate = learning_rate
        self._low = low
        self._high = high
        self.value = min(max(start, low), high)

    def at(self, progress: Progress) -> float:
        """Returns the weight, at any point of the run."""
        return self.value

    def adapt(self, entropy: float) -> None:
        """Changes the weight after a batch; `entropy` is that of its last pass [nats].

        An entropy that is not finite changes nothing.
        """
        if math.isfinite(entropy):
            moved = math.log(self.value) + self._rate * (self._target - entropy)
            # Compared as logarithms: exp() of a large one overflows.
            bounded = min(max(moved, math.log(self._low)), math.log(self._high))
            self.value = math.exp(bounded)

    def state_dict(self) -> dict[str, Any]:
        """Returns the weight."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.value = float(state["value"])


class KLPenalty:
    """Weight of a penalty on divergence, adapted to the measured divergence.

    Args:
        coefficient: the first weight; 0: no penalty, also later.
        target: divergence that the adaptation aims at [nats].
    """

    def __init__(self, coefficient: float, target: float) -> None:
        self.coefficient = coefficient
        self._target = target

    def adapt(self, kl: float) -> None:
        """Adapts the weight after a batch; `kl` is the divergence in its last pass [nats]."""
        self.coefficient = adapted_kl_coefficient(self.coefficient, kl, self._target)

    def state_dict(self) -> dict[str, Any]:
        """Returns the weight."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.coefficient = float(state["coefficient"])
