"""The table that samples rows in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.errors import ConfigError
from surreal_like.exploration.schedule import Schedule, make_schedule
from surreal_like.replay.age_selector import AgeRule
from surreal_like.replay.priority_selector import PrioritySelector
from surreal_like.replay.selector import Selector
from surreal_like.replay.table import Table


class PrioritizedReplay(Table):
    """Proportional prioritized replay: :class:`UniformReplay` with another selector.

    ``learner_config.replay.priority`` has its numbers; ``beta`` is a schedule over the progress
    that the learner reports. The learner sends new priorities after each update; those of rows
    that have been evicted meanwhile are counted and ignored.

    Raises:
        ConfigError: a number of ``priority`` is out of its range.
    """

    takes_priorities = True

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes a selector by priorities; its weights are relative to the largest of all shards."""
        replay = self.learner_config["replay"]
        if AgeRule.of(replay).matters:
            raise ConfigError(
                "learner_config.replay.age is for UniformReplay: PrioritizedReplay draws by "
                "priority alone; set both of its numbers to 0, or type to UniformReplay's"
            )
        priority = replay["priority"]
        beta = _checked_beta(priority["beta"])
        return PrioritySelector(
            capacity,
            alpha=priority["alpha"],
            beta=lambda: beta.at(self),
            epsilon=priority["epsilon"],
            least_elsewhere=lambda: self.least_mass,
            seed=seed,
        )


def _checked_beta(config: Mapping[str, Any] | float) -> Schedule:
    where = "learner_config.replay.priority.beta"
    schedule = make_schedule(config, where)
    for _, value in schedule.points:
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{where} reaches {value:g}, expected 0 to 1 all the way")
    return schedule
