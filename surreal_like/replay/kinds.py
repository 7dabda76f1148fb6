"""The kinds of replay: each is a table with a choice of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from session.config import Config
from session.errors import ConfigError
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.exploration.schedule import Schedule, make_schedule
from surreal_like.replay.select.age import AgeRule, AgeSelector
from surreal_like.replay.select.fifo import FIFOSelector
from surreal_like.replay.select.priority import PrioritySelector
from surreal_like.replay.select.selector import Selector, UniformSelector
from surreal_like.replay.storage import ColumnStorage, Rows
from surreal_like.replay.table import Table
from surreal_like.replay.unrolls import BlockStorage, UnrollPlan, plan_unrolls
from surreal_like.replay.view.n_step import Floats, NStepView, View
from surreal_like.replay.view.unroll import make_unroll_view

# Values that agents computed when they acted: of the taken and of the best action.
_TAKEN, _GREEDY = "extras/q_taken", "extras/q_greedy"


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


class PrioritizedReplay(Table):
    """Proportional prioritized replay: :class:`UniformReplay` with another selector.

    ``learner_config.replay.priority`` has its numbers; ``beta`` is a schedule over the progress
    that the learner reports. The learner sends new priorities after each update; those of rows
    that have been evicted meanwhile are counted and ignored. With ``initial: acting`` the first
    priority of a row is the n-step error by the columns ``extras/q_taken`` and ``extras/q_greedy``.

    Raises:
        ConfigError: a number of ``priority`` is out of its range.
    """

    takes_priorities = reads_values = True

    def make_selector(self, capacity: int, seed: int) -> Selector:
        """Makes a selector by priorities; its weights are relative to the largest of all shards."""
        replay = self.learner_config["replay"]
        if AgeRule.of(replay).matters:
            raise ConfigError(
                "learner_config.replay.age is for UniformReplay: PrioritizedReplay draws by "
                "priority alone; set both of its numbers to 0, or type to UniformReplay's"
            )
        priority = replay["priority"]
        beta = _make_beta(priority["beta"])
        return PrioritySelector(
            capacity,
            alpha=priority["alpha"],
            beta=lambda: beta.at(self),
            epsilon=priority["epsilon"],
            least_elsewhere=lambda: self.least_mass,
            first_priorities=self.acting_errors if self._acting else None,
            seed=seed,
        )

    @property
    def _acting(self) -> bool:
        return bool(self.learner_config["replay"]["priority"].get("initial") == "acting")

    def insert(self, experience: Chunk) -> None:
        """Inserts a chunk; see :meth:`Table.insert`.

        Raises:
            DataError: it lacks the values that first priorities are made of.
        """
        if self._acting:
            _check_values(experience)
        super().insert(experience)

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


class FIFOReplay(Table):
    """A queue of whole unrolls for on-policy learners, and those already learned from.

    An unroll has ``session_config.sender.flush_iteration`` steps (T) of all streams of one agent.
    ``learner_config.replay.batch_size`` counts streams, ``capacity`` rows. A full queue makes
    agents wait, or drops its oldest unrolls where ``when_full`` is ``drop_oldest``; unrolls that
    were acted with parameters more than ``evict_rule.max_version_lag`` versions old are never
    learned from. Lost unrolls are counted.

    ``replay_proportion`` of the streams of each batch are drawn from the newest
    ``replay_capacity`` rows that have been learned from; until there are enough of them, batches
    hold new unrolls only. ``max_version_lag`` does not apply to replayed unrolls, which are old by
    intention; ``age`` bounds them. ``replayed``, bool ``[B]`` in each batch, flags their streams.
    They count as ``replayed``, not as ``sampled`` once more.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or there is no room for one.
    """

    overlap = 1
    consumes = True
    relabels = iterates = False
    plan: UnrollPlan
    selector: FIFOSelector

    @classmethod
    def make_view(cls, learner_config: Config, env_config: Config, shape: tuple[int, int]) -> View:
        """Makes the view of whole unrolls."""
        return make_unroll_view(learner_config, env_config, shape)

    def make_plan(self) -> UnrollPlan:
        """Makes the sizes of the queue and of the unrolls to be replayed."""
        return plan_unrolls(self.learner_config, self.env_config, self.session_config)

    def insert(self, experience: Chunk) -> None:
        """Inserts the unrolls of a chunk; see :meth:`Table.insert`.

        Those of several agents come in chunks of as many streams as were full at the same time.
        """
        for part in experience.parts(self.plan.num_envs):
            self.selector.arriving = part.steps, self.limiter.inserted * self.plan.unit
            super().insert(part)

    @property
    def drawn(self) -> Sequence[int]:
        return self.selector.places

    def steps_of_batch(self, taken: int) -> int:
        return self.selector.steps

    def make_storage(self) -> ColumnStorage:
        """Makes blocks that each hold an unroll; never is one evicted in part."""
        plan = self.plan
        return BlockStorage(
            plan.rows_each,
            plan.lead,
            most=lambda: plan.capacity,
            needed=lambda: self.selector.needed(),
            manifest=self.columns,
        )

    def make_selector(self, capacity: int, seed: int) -> FIFOSelector:
        """Makes a queue, of which a share may be drawn again."""
        return FIFOSelector(
            self.plan,
            versions=self.versions,
            newest_version=lambda: self.newest_version,
            rule=AgeRule.of(self.learner_config["replay"]),
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


def _make_beta(config: Mapping[str, Any] | float) -> Schedule:
    where = "learner_config.replay.priority.beta"
    schedule = make_schedule(config, where)
    for _, value in schedule.points:
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"{where} reaches {value:g}, expected 0 to 1 all the way")
    return schedule
