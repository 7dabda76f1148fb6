"""Replay that samples rows in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.exploration.schedule import Schedule, make_schedule
from surreal_like.replay.age import AgeRule
from surreal_like.replay.priority_selector import PrioritySelector
from surreal_like.replay.selector import Sample
from surreal_like.replay.uniform_replay import UniformReplay


class PrioritizedReplay(UniformReplay):
    """Proportional prioritized replay: :class:`UniformReplay` with another selector.

    ``learner_config.replay.priority`` has its numbers; ``beta`` is a schedule over the progress
    that the learner reports. The learner sends new priorities after each update; those of rows
    that have been evicted meanwhile are counted and ignored.

    Raises:
        ConfigError: the settings must deadlock, or a number of ``priority`` is out of its range.
    """

    takes_priorities = True

    def _make_selector(self, capacity: int) -> PrioritySelector:
        replay = self.learner_config["replay"]
        if AgeRule.of(replay).matters:
            raise ConfigError(
                "learner_config.replay.age is for UniformReplay: PrioritizedReplay draws by "
                "priority alone; set both of its numbers to 0, or type to UniformReplay's"
            )
        priority = replay["priority"]
        self._beta = _checked_beta(priority["beta"])
        self._priorities = PrioritySelector(
            capacity,
            alpha=priority["alpha"],
            beta=self._beta.at(self),
            epsilon=priority["epsilon"],
            seed=self._seed,
        )
        return self._priorities

    def sample(self, batch_size: int) -> Sample:
        """Returns row numbers where transitions start, and their weights by the present beta.

        Raises:
            SurrealError: no row can be sampled now.
        """
        self._priorities.beta = self._beta.at(self)
        return super().sample(batch_size)

    def update_priorities(self, indices: npt.NDArray[Any], priorities: npt.NDArray[Any]) -> None:
        """Sets new priorities, ``[B]`` and 0 or above, of the rows ``indices``, ``[B]`` int64.

        Raises:
            SurrealError: a priority is negative or not a number; nothing is changed then.
        """
        self._priorities.update(indices, np.asarray(priorities, np.float32))

    def on_learner(
        self, *, version: int, least_mass: float, env_steps: int = 0, iteration: int = 0
    ) -> None:
        """Stores the progress; weights are relative to the largest one of all shards."""
        super().on_learner(
            version=version, least_mass=least_mass, env_steps=env_steps, iteration=iteration
        )
        self._priorities.least_elsewhere = least_mass

    def statistics(self) -> dict[str, float]:
        """Adds to :class:`UniformReplay`: total and least mass, beta, ignored (late) priorities."""
        return {
            **super().statistics(),
            "priority_mass": self._priorities.mass,
            "priority_least": self._priorities.least,
            "priority_beta": self._priorities.beta,
            "priorities_ignored": self._priorities.ignored,
        }


def _checked_beta(config: Mapping[str, Any] | float) -> Schedule:
    where = "learner_config.replay.priority.beta"
    schedule = make_schedule(config, where)
    for _, value in schedule.points:
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{where} reaches {value:g}, expected 0 to 1 all the way")
    return schedule
