"""The table that samples rows in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.data.batch import Collate
from surreal_like.data.frames import stack_size
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.exploration.schedule import Schedule, make_schedule
from surreal_like.replay.select.age import AgeRule, AgeSelector
from surreal_like.replay.select.priority import PrioritySelector
from surreal_like.replay.select.selector import Sample, Selector, UniformSelector
from surreal_like.replay.storage import Rows
from surreal_like.replay.table import Table
from surreal_like.replay.view.n_step import Floats, NStepView
from surreal_like.replay.view.sequence import SequenceView, Stacker
from surreal_like.transform.reward import make_reward_transform


class UniformReplay(Table):
    """Uniform sampling with replacement from the newest rows, as n-step transitions.

    ``learner_config.replay.age`` makes old rows less likely, or leaves them out, see
    :class:`AgeSelector`.
    """

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes a uniform selector, or one by age where the config has a rule for it."""
        rule = AgeRule.of(self.learner_config["replay"])
        if not rule.matters:
            return UniformSelector(capacity, seed=seed)
        return AgeSelector(
            capacity,
            rule,
            versions=self.versions,
            newest_version=lambda: self.newest_version,
            seed=seed,
        )


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


class SequenceReplay(PrioritizedReplay):
    """:class:`PrioritizedReplay` of sequences, for recurrent Q-learning.

    ``learner_config.replay.sequence`` has their length, burn-in and period. ``batch_size``,
    ``min_size`` and ``samples_per_insert`` count sequences, ``capacity`` rows. A batch is that of
    :class:`SequenceView`, with ``weights`` float32 and ``indices`` int64 ``[B]``; the priority of a
    sequence is the learner's (:func:`surreal_like.loss.value.sequence_priority`). With
    ``priority.alpha`` 0 sequences are drawn uniformly.

    Raises:
        ConfigError: a number of ``sequence`` or ``priority`` is out of its range.
    """

    relabels = reads_values = False
    view: SequenceView

    @classmethod
    def gives(cls) -> str:
        """Returns the content of a batch."""
        return "sequences"

    def make_view(self) -> None:
        """Makes the view of ``learner_config.replay.sequence``."""
        algo, replay = self.learner_config["algo"], self.learner_config["replay"]
        sequence = replay["sequence"]
        rows = sequence["burn_in"] + sequence["length"]
        if rows > replay["capacity"]:
            raise ConfigError(
                f"learner_config.replay.sequence has burn_in + length = {rows} rows, more than "
                f"learner_config.replay.capacity {replay['capacity']}: lower one or raise the other"
            )
        self.view = SequenceView(
            sequence["length"],
            algo["gamma"],
            burn_in=sequence["burn_in"],
            period=sequence["period"],
            transform=make_reward_transform(algo),
            frame_stack=stack_size(self.env_config),
        )

    def _require_room(self, rows: int, why: str = "") -> None:
        """Raises ConfigError if ``min_size`` sequences can never start in so many rows."""
        period, least = self.view.period, self.limiter.min_size
        room = rows - self._waiting_rows
        if least > room // period:
            raise ConfigError(
                f"min_size is {least} sequences, but {rows} rows of capacity{why and f' ({why})'} -"
                f" {self._waiting_rows} rows that wait for others ({self._waiting_words}) = {room},"
                f" in which {max(room // period, 0)} start, one each {period} rows: sampling would "
                "never start; lower min_size or raise the capacity"
            )

    def aggregate_batch(self, sample: Sample) -> dict[str, Any]:
        """Returns the sequences side by side; see :meth:`Table.aggregate_batch`."""
        return {**super().aggregate_batch(sample), "indices": sample.numbers}

    def batches_at_once(self, asked: int) -> int:
        """One, because time comes first in a batch."""
        return 1

    @classmethod
    def collate(cls, learner_config: Any) -> Collate:
        """Returns a function that makes the stacks of a batch, where observations are stacks."""
        return Stacker()
