"""The table that samples rows in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.exploration.schedule import Schedule, make_schedule
from surreal_like.replay.age_selector import AgeRule
from surreal_like.replay.n_step_view import Floats, NStepView
from surreal_like.replay.priority_selector import PrioritySelector
from surreal_like.replay.selector import Selector
from surreal_like.replay.stream_table import Rows
from surreal_like.replay.table import Table

# Values that agents computed when they acted: of the taken and of the best action.
_TAKEN, _GREEDY = "extras/q_taken", "extras/q_greedy"


class PrioritizedReplay(Table):
    """Proportional prioritized replay: :class:`UniformReplay` with another selector.

    ``learner_config.replay.priority`` has its numbers; ``beta`` is a schedule over the progress
    that the learner reports. The learner sends new priorities after each update; those of rows
    that have been evicted meanwhile are counted and ignored. With ``initial: acting`` the first
    priority of a row is the n-step error by the columns ``extras/q_taken`` and ``extras/q_greedy``.

    Raises:
        ConfigError: a number of ``priority`` is out of its range.
    """

    takes_priorities = True
    reads_values = True

    def insert(self, experience: Chunk) -> None:
        """Inserts a chunk; see :meth:`Table.insert`.

        Raises:
            DataError: it lacks the values that first priorities are made of.
        """
        if self._acting:
            _check_values(experience)
        super().insert(experience)

    @property
    def _acting(self) -> bool:
        return bool(self.learner_config["replay"]["priority"].get("initial") == "acting")

    def mark(self, numbers: Rows, ready: npt.NDArray[np.bool_], earlier: Rows) -> None:
        """Adds rows to the selector, with their first priorities."""
        if not self._acting:
            super().mark(numbers, ready, earlier)
            return
        errors = self.acting_errors(np.concatenate((numbers[ready], earlier)))
        self.selector.mark_with(int(numbers[0, 0]), ready, earlier, errors)

    def acting_errors(self, rows: Rows) -> Floats:
        """Returns absolute errors of rows by the values that the agent computed, ``[B]`` float32.

        They are n-step errors: Horgan et al. 2018, section 3.
        """
        view, storage = self.view, self.storage
        assert isinstance(view, NStepView)  # made by make_view
        found = view.transitions(storage, rows)
        target = found.rewards + found.discounts * storage.take(_GREEDY, found.ends)
        errors: Floats = np.abs(target - storage.take(_TAKEN, storage.locate(rows)))
        if not np.isfinite(errors).all():
            # Sums of the largest rewards are infinite, which no priority may be.
            errors = np.nan_to_num(errors)
        return errors

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


def _check_values(chunk: Chunk) -> None:
    """Raises DataError unless a chunk has the values of its actions, float32 ``[T, N]``."""
    for name in (_TAKEN, _GREEDY):
        column = chunk.columns.get(name)
        if column is None:
            wrong = "is missing"
        elif column.dtype != np.float32 or column.shape != chunk.shape:
            wrong = f"is {column.dtype} {list(column.shape)}, not float32 {list(chunk.shape)}"
        elif not np.isfinite(column).all():
            wrong = "has a value that is not finite"
        else:
            continue
        raise DataError(
            f"chunk from {chunk.sender}: column '{name}' {wrong}; "
            "learner_config.replay.priority.initial acting makes first priorities of it"
        )


def _checked_beta(config: Mapping[str, Any] | float) -> Schedule:
    where = "learner_config.replay.priority.beta"
    schedule = make_schedule(config, where)
    for _, value in schedule.points:
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{where} reaches {value:g}, expected 0 to 1 all the way")
    return schedule
