"""Selection of rows in training iterations: by another selector, or each row once per pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.replay.iteration import Iteration
from surreal_like.replay.selector import Flags, Sample, Selector
from surreal_like.replay.stream_table import Rows


class EpochSelector(Selector):
    """Gives batches of the sizes of an iteration.

    With ``whole`` a batch is the next part of all sampleable rows in a random order, another one in
    each pass; weights are 1. Otherwise the other selector draws.

    Args:
        drawing: keeps the set of sampleable rows.
        iteration: decides the sizes.
        seed: of the generator.
    """

    def __init__(self, drawing: Selector, iteration: Iteration, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._drawing, self._iteration = drawing, iteration
        # What is left of the present pass.
        self._order: Rows = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._drawing)

    @property
    def mass(self) -> float:
        """That of the other selector."""
        return self._drawing.mass

    def mark(self, first: int, ready: Flags) -> None:
        self._drawing.mark(first, ready)

    def mark_with(
        self, first: int, ready: Flags, earlier: Rows, priorities: npt.NDArray[np.float32]
    ) -> None:
        self._drawing.mark_with(first, ready, earlier, priorities)

    def mark_earlier(self, numbers: Rows) -> None:
        self._drawing.mark_earlier(numbers)

    def unmark(self, numbers: Rows) -> int:
        return self._drawing.unmark(numbers)

    def evict(self, oldest: int) -> int:
        return self._drawing.evict(oldest)

    def listed(self) -> Rows:
        return self._drawing.listed()

    def sample(self, batch_size: int) -> Sample:
        """Draws the next batch of the training; the first one begins it."""
        if not self._iteration.training:
            self._iteration.begin(len(self), batch_size)
        size = self._iteration.take()
        if not self._iteration.whole:
            return self._drawing.sample(size)
        if not len(self._order):
            self._order = self._generator.permutation(self.listed())
        numbers, self._order = self._order[:size], self._order[size:]
        return Sample(numbers, {"weights": np.ones(len(numbers), np.float32)})

    def update(self, numbers: Rows, priorities: npt.NDArray[np.float32]) -> None:
        """Sets priorities of rows, where the other selector has any."""
        self._drawing.update(numbers, priorities)

    def reseed(self, seed: int) -> None:
        """Starts new random generators."""
        super().reseed(seed)
        self._drawing.reseed(seed)

    def statistics(self) -> dict[str, float]:
        """Those of the other selector."""
        return self._drawing.statistics()

    def state(self) -> dict[str, Any]:
        """The state of the other selector, the order that is left, and the generator of orders."""
        generator = self._generator.bit_generator.state
        return {**self._drawing.state(), "order": self._order, "of_orders": generator}

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on."""
        self._drawing.restore(state, oldest, ready)
        if "order" in state:
            self._order = np.asarray(state["order"], np.int64)
            self._generator.bit_generator.state = state["of_orders"]
