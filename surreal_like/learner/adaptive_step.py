"""Step size that follows the divergence of the policy from the one that acted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from surreal_like.exploration.schedule import Progress

_FACTOR = 1.5

# The keys of `learner_config.algo.adaptive_learning_rate`.
ADAPTIVE_STEP_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # Above twice this divergence the step size falls by a factor 1.5, below half of it it rises
        # by 1.5 [nats]; 0: the step size is not adapted.
        "kl": 0.0,
        # The smallest step size.
        "low": 1e-6,
        # The largest step size.
        "high": 1e-2,
    }
)


class AdaptiveStep:
    """Step size, changed after each batch to keep the divergence within a factor 2 of a target.

    Args:
        start: the first step size.
        kl: target of the divergence [nats].
        low, high: bounds of the changes.
    """

    def __init__(self, start: float, *, kl: float, low: float = 1e-6, high: float = 1e-2) -> None:
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
