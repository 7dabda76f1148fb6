"""Replay that samples rows in proportion to their priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.replay import settings
from surreal_like.replay.priority_selector import PrioritySelector
from surreal_like.replay.uniform_replay import UniformReplay


class PrioritizedReplay(UniformReplay):
    """Proportional prioritized replay: :class:`UniformReplay` with another selector.

    ``learner_config.replay.priority`` has its numbers. The learner sends new priorities after each
    update; those of rows that have been evicted meanwhile are counted and left.

    Raises:
        ConfigError: the settings must deadlock, or a number of ``priority`` is out of its range.
    """

    takes_priorities = True

    def _make_selector(self, capacity: int) -> PrioritySelector:
        priority = self.learner_config["replay"]["priority"]
        self._priorities = PrioritySelector(
            capacity,
            alpha=priority["alpha"],
            beta=priority["beta"],
            epsilon=priority["epsilon"],
            seed=settings.default_seed(self.session_config),
        )
        return self._priorities

    def update_priorities(self, indices: npt.NDArray[Any], priorities: npt.NDArray[Any]) -> None:
        """New priorities, ``[B]`` and 0 or above, of the rows ``indices``, ``[B]`` int64.

        Raises:
            SurrealError: a priority is negative or not a number; nothing has been changed then.
        """
        self._priorities.update(indices, np.asarray(priorities, np.float32))

    def hear_learner(self, *, version: int, least_mass: float) -> None:
        """Weights are over the largest one of all shards."""
        super().hear_learner(version=version, least_mass=least_mass)
        self._priorities.least_elsewhere = least_mass

    def statistics(self) -> dict[str, float]:
        """Those of :class:`UniformReplay`, masses of all and of one row, and updates too late."""
        return {
            **super().statistics(),
            "priority_mass": self._priorities.mass,
            "priority_least": self._priorities.least,
            "priorities_ignored": self._priorities.ignored,
        }
