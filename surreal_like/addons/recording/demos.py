"""Demonstrations: a second table whose rows are never removed, and a share of each batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.addons.recording.sources import DEMOS
from surreal_like.experience.chunk import Chunk
from surreal_like.exploration.schedule import make_schedule
from surreal_like.replay.kept_memory import Zeros
from surreal_like.replay.replay import to_columns
from surreal_like.replay.select.selector import Sample
from surreal_like.replay.table import Table

_KEY = "learner_config.replay.demos"
# Above all numbers of other rows.
_OFFSET = 1 << 62


_KINDS: dict[type[Table], type[Table]] = {}


def with_demos(kind: type[Table]) -> type[Table]:
    """Returns a kind of replay that also has a table of demonstrations of the same kind."""
    if kind not in _KINDS:
        names = {"base": kind, "__module__": __name__}
        _KINDS[kind] = type(kind.__name__, (DemoReplay, kind), names)
    return _KINDS[kind]


class DemoReplay(Table):
    """Draws a share of each batch from the demonstrations, and the rest from the other rows.

    Weights, priorities and goals of hindsight keep to their table. Limits of how often rows are
    drawn, and how many are kept, are those of the other rows.

    Attributes:
        base: the kind of both tables.
        demos: table of the demonstrations.

    Raises:
        ConfigError: a proportion is out of its range, or batches would have no demonstrations, or
            no other rows.
    """

    base: ClassVar[type[Table]]

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        settings = learner_config["replay"]["demos"]
        self._proportion = make_schedule(settings["proportion"], f"{_KEY}.proportion", least=0.0)
        self._batch: int = learner_config["replay"]["batch_size"]
        most = max(value for _, value in self._proportion.points)
        if most and not round(most * self._batch):
            raise ConfigError(
                f"{_KEY}.proportion is {most:g}, which leaves no demonstration in a batch of "
                f"{self._batch}: raise it, or learner_config.replay.batch_size"
            )
        if round(most * self._batch) >= self._batch:
            raise ConfigError(
                f"{_KEY}.proportion is {most:g}, which leaves no other rows in a batch of "
                f"{self._batch}: lower it, or learn from session_config.dataset.path alone"
            )
        own = learner_config.copy()
        own.replay |= {
            "capacity": settings["capacity"],
            "max_bytes": 0,
            "min_size": 1,
            "samples_per_insert": 0,
        }
        # Their versions are of no parameters of this run, and no training waits for them.
        own.replay.age.max_versions = own.replay.iteration.unroll_length = 0
        self.demos = self.base(
            learner_config=own, env_config=env_config, session_config=session_config
        )
        self._drawn = Sample.of(np.zeros(0, np.int64))

    def _count_demos(self, rows: int) -> int:
        """Returns the demonstrations in so many rows, which are whole batches or a smaller one."""
        batch = min(self._batch, rows)
        return rows // batch * round(self._proportion.at(self) * batch)

    # -- rows in ----------------------------------------------------------------------------------

    def insert(self, experience: Chunk) -> None:
        if experience.sender.startswith(f"{DEMOS}-"):
            self.demos.insert(experience)
        else:
            super().insert(experience)

    def can_insert(self) -> bool:
        """True also until the first demonstrations are there: batches wait for them."""
        return super().can_insert() or not self.demos.selector.drawable

    # -- batches out ------------------------------------------------------------------------------

    def can_sample(self, batch_size: int) -> bool:
        demos = self._count_demos(batch_size)
        if demos and not self.demos.selector.drawable:
            return False
        return super().can_sample(batch_size - demos)

    def needed_rows(self, batch_size: int) -> int:
        return super().needed_rows(batch_size - self._count_demos(batch_size))

    def sample(self, batch_size: int) -> Sample:
        demos = self._count_demos(batch_size)
        drawn = self.demos.sample(demos) if demos else Sample.of(np.zeros(0, np.int64))
        self._drawn = drawn
        return super().sample(batch_size - demos)

    def aggregate_batch(self, sample: Sample) -> dict[str, Array]:
        """Returns the samples as columns, the demonstrations of each batch in front."""
        drawn = len(self._drawn.numbers)
        if not drawn:
            return super().aggregate_batch(sample)
        empty, self.empty = self.empty, None
        try:
            rows = to_columns(super().aggregate_batch(sample))
        finally:
            self.empty = empty
        demos = to_columns(self.demos.aggregate_batch(self._drawn))
        demos["indices"] = demos["indices"] + _OFFSET
        total = drawn + len(sample.numbers)
        batches = max(1, total // self._batch)
        batch: dict[str, Array] = {}
        for name, column in rows.items():
            both = (empty or np.empty)((total, *column.shape[1:]), column.dtype)
            parts = both.reshape(batches, total // batches, *column.shape[1:])
            cut = drawn // batches
            parts[:, :cut] = demos[name].reshape(batches, cut, *column.shape[1:])
            parts[:, cut:] = column.reshape(batches, -1, *column.shape[1:])
            batch[name] = both
        return batch

    def rows_in(self, batch_size: int) -> int:
        return super().rows_in(batch_size) + len(self._drawn.numbers)

    def update_priorities(self, indices: npt.NDArray[Any], priorities: npt.NDArray[Any]) -> None:
        own = indices < _OFFSET
        super().update_priorities(indices[own], priorities[own])
        self.demos.update_priorities(indices[~own] - _OFFSET, priorities[~own])

    # -- numbers and saving -----------------------------------------------------------------------

    def on_learner(self, *, iteration: int = 0, **progress: Any) -> None:
        super().on_learner(iteration=iteration, **progress)
        # The smallest mass elsewhere is one of the other rows.
        self.demos.on_learner(iteration=iteration, **progress | {"least_mass": math.inf})

    def statistics(self) -> dict[str, float]:
        found, demos = super().statistics(), len(self.demos.storage)
        return {**found, "size": found["size"] + demos, "demos": demos}

    def keep_in(self, zeros: Zeros) -> None:
        super().keep_in(zeros)
        self.demos.keep_in(lambda name, shape, dtype: zeros(f"{DEMOS}/{name}", shape, dtype))

    def counts(self) -> dict[str, Any]:
        return {**super().counts(), DEMOS: self.demos.counts()}

    def adopt(self, counts: Mapping[str, Any]) -> None:
        super().adopt(counts)
        self.demos.adopt(counts[DEMOS])

    def state(self) -> dict[str, Any]:
        return {**super().state(), DEMOS: self.demos.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        # A run may have got demonstrations when it was resumed.
        if DEMOS in state:
            self.demos.restore(state[DEMOS])

    def reseed(self, seed: int) -> None:
        super().reseed(seed)
        # Both tables would draw alike.
        self.demos.reseed(seed + 1)

    def forget_senders(self) -> None:
        super().forget_senders()
        self.demos.forget_senders()
