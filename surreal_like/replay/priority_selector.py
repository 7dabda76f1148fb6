"""Selection of rows for a sample: each sampleable row in proportion to its priority."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError, SurrealError
from surreal_like.replay.ring import spans
from surreal_like.replay.selector import Sample
from surreal_like.replay.stream_table import Rows
from surreal_like.replay.sum_tree import SumTree

Priorities = npt.NDArray[np.float32]


class PrioritySelector:
    """Draws sampleable rows in proportion to ``priority ** alpha``, with replacement.

    New rows have the highest priority that any row has had, so each is likely to be drawn soon. A
    row's weight is ``(N P) ** -beta`` over the largest weight that any row has, which corrects for
    rows that are drawn too often (Schaul and others 2016, "Prioritized experience replay",
    section 3.4); draws are independent of each other, where the paper draws one from each of B
    equal parts of the mass.

    Args:
        capacity: at least the most rows that exist at once.
        alpha: 0 is uniform, 1 fully in proportion.
        beta: strength of the correction by weights, 0 for none, 1 for full.
        epsilon: least priority, so that every row can be drawn.
        seed: of the generator.

    Attributes:
        beta: the same; may be changed.
        ignored: number of priorities received for rows that are not sampleable.
        least_elsewhere: the smallest mass of any row of the selectors in other shards; all draw
            from one population.

    Raises:
        ConfigError: a number is out of its range.
    """

    def __init__(
        self, capacity: int, *, alpha: float, beta: float, epsilon: float, seed: int = 0
    ) -> None:
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"replay.priority.{name} is {value}, expected 0 to 1")
        if not epsilon > 0.0:
            raise ConfigError(f"replay.priority.epsilon is {epsilon}, expected more than 0")
        slots = 1 << max(capacity - 1, 0).bit_length()
        self.ignored = 0
        self.least_elsewhere = math.inf
        self._tree = SumTree(slots)
        self._slots = slots
        self.beta = beta
        self._alpha, self._epsilon = alpha, epsilon
        self._highest = 1.0
        self._oldest = 0
        self._next_number = 0
        self._size = 0
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Number of sampleable rows."""
        return self._size

    @property
    def drawable(self) -> int:
        """Number of sampleable rows: all may be drawn."""
        return self._size

    @property
    def mass(self) -> float:
        """Sum of all ``priority ** alpha``."""
        return self._tree.total

    @property
    def least(self) -> float:
        """The smallest ``priority ** alpha`` of a sampleable row, infinity if there is none."""
        return self._tree.least

    def mark(self, first: int, ready: npt.NDArray[np.bool_]) -> None:
        """Adds new rows, numbered from ``first`` on; ``ready`` flags the sampleable ones."""
        flags = ready.reshape(-1)
        masses = flags * self._highest**self._alpha
        for slots, part in spans(first, len(flags), self._slots):
            self._tree.fill(slots, masses[part])
        self._size += int(np.count_nonzero(flags))
        self._next_number = first + len(flags)

    def mark_earlier(self, numbers: Rows) -> None:
        """Marks earlier rows, none of them marked before, as sampleable."""
        if len(numbers):
            self._tree.put(numbers & (self._slots - 1), self._highest**self._alpha)
            self._size += len(numbers)

    def unmark(self, numbers: Rows) -> int:
        """Marks existing rows, each once, as not sampleable; returns how many of them were."""
        gone = int(np.count_nonzero(self.is_ready(numbers)))
        if gone:
            self._tree.put(numbers & (self._slots - 1), 0.0)
            self._size -= gone
        return gone

    def evict(self, oldest: int) -> int:
        """Removes rows older than ``oldest``; returns how many of them were sampleable."""
        end = min(max(oldest, self._oldest), self._next_number)
        gone = 0
        for slots, _ in spans(self._oldest, end - self._oldest, self._slots):
            gone += self._tree.fill(slots, 0.0)
        self._oldest = end
        self._size -= gone
        return gone

    def is_ready(self, numbers: Rows) -> npt.NDArray[np.bool_]:
        """True where an existing row is sampleable."""
        ready: npt.NDArray[np.bool_] = self._tree.get(numbers & (self._slots - 1)) > 0.0
        return ready

    def update(self, numbers: Rows, priorities: Priorities) -> None:
        """Sets priorities, 0 or above, of rows; counts and ignores those of rows that are gone.

        Raises:
            SurrealError: a priority is negative or not a number; nothing is changed then.
        """
        if not (priorities >= 0.0).all() or not np.isfinite(priorities).all():
            raise SurrealError("a priority is negative, infinite or not a number")
        here = (numbers >= self._oldest) & (numbers < self._next_number)
        here[here] = self.is_ready(numbers[here])
        self.ignored += len(numbers) - int(np.count_nonzero(here))
        raised = np.maximum(priorities[here].astype(np.float64), self._epsilon)
        if len(raised):
            self._highest = max(self._highest, float(raised.max()))
            self._tree.put(numbers[here] & (self._slots - 1), raised**self._alpha)

    def sample(self, batch_size: int) -> Sample:
        """Draws rows, and weights in ``(0, 1]``.

        Raises:
            SurrealError: no row is sampleable.
        """
        if not self._size:
            raise SurrealError("no row can be sampled yet: ask start_sample_condition() first")
        slots = self._tree.find(self._generator.random(batch_size) * self._tree.total)
        base = self._oldest - (self._oldest & (self._slots - 1))
        numbers = base + slots
        numbers[numbers < self._oldest] += self._slots
        # (N p / total) ** -beta over the same of the least p: N and total cancel out.
        least = min(self._tree.least, self.least_elsewhere)
        weights = (self._tree.get(slots) / least) ** -self.beta
        return Sample(numbers, weights.astype(np.float32))

    def reseed(self, seed: int) -> None:
        """Starts a new random generator."""
        self._generator = np.random.default_rng(seed)

    def state(self) -> dict[str, Any]:
        """Masses of all rows, the oldest first, and plain values."""
        numbers = np.arange(self._oldest, self._next_number)
        return {
            "generator": self._generator.bit_generator.state,
            "masses": self._tree.get(numbers & (self._slots - 1)),
            "highest": self._highest,
        }

    def restore(self, state: Mapping[str, Any], oldest: int, ready: npt.NDArray[np.bool_]) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on.

        Rows that another view makes sampleable get the highest priority.
        """
        self._highest = state["highest"]
        self._size, self._oldest = 0, oldest
        self.mark(oldest, ready)
        # With a smaller capacity than before only the newest rows are here.
        masses = np.asarray(state["masses"], np.float64)
        masses = masses[len(masses) - len(ready) :]
        known = (masses > 0.0) & ready
        numbers = oldest + np.flatnonzero(known)
        self._tree.put(numbers & (self._slots - 1), masses[known])
        self._generator.bit_generator.state = state["generator"]
