"""Replay inside the learner's process: a ring of rows or of streams, and a ring of whole items."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import torch

from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow.flow import STALLED, Flow, Operator
from surreal_like.dataflow.items import axis_in, axis_of, batch_of, columns_of, copy_item
from surreal_like.errors import DataError


class LocalReplay:
    """A ring of rows, or of streams of unrolls; drawn uniformly, with replacement.

    Args:
        capacity: rows or streams that it keeps.
        min_size: a source of it is stalled until it holds so many.
        seed: seed of the draws; in a run give `learner.seed`.

    Attributes:
        generator: source of the draws. Checkpoints have its state, but not the rows.

    Raises:
        ValueError: not 1 <= `min_size` <= `capacity`.
    """

    def __init__(self, capacity: int, min_size: int = 1, seed: int = 0) -> None:
        if not 1 <= min_size <= capacity:
            raise ValueError(
                f"a LocalReplay needs 1 <= min_size <= capacity, not {min_size} and {capacity}"
            )
        self.capacity = capacity
        self.min_size = min_size
        self.generator = torch.Generator().manual_seed(seed)
        self._columns: dict[str, torch.Tensor] = {}
        self._axis = 0
        self._next = self._size = 0

    def __len__(self) -> int:
        """Number of rows or streams."""
        return self._size

    def insert(self, batch: Batch) -> None:
        """Copies the rows, or the streams, of a batch; they replace the oldest.

        Raises:
            DataError: other columns, types or shapes than before.
        """
        axis, columns = axis_of(batch), columns_of(batch)
        if not self._columns:
            self._axis = axis
            self._columns = {name: self._ring(column) for name, column in columns.items()}
        self._check(columns)
        count = batch["rewards"].shape[axis]
        kept = min(count, self.capacity)
        places = (self._next + count - kept + torch.arange(kept)) % self.capacity
        for name, column in columns.items():
            along = axis_in(column, axis)
            newest = column.narrow(along, count - kept, kept).detach()
            self._columns[name].index_copy_(along, places.to(column.device), newest)
        self._next = (self._next + count) % self.capacity
        self._size = min(self.capacity, self._size + count)

    def sample(self, size: int) -> Batch:
        """Returns a batch of `size` rows or streams."""
        drawn = torch.randint(self._size, (size,), generator=self.generator)
        return make_batch(
            {
                name: column.index_select(axis_in(column, self._axis), drawn.to(column.device))
                for name, column in self._columns.items()
            }
        )

    def _ring(self, column: torch.Tensor) -> torch.Tensor:
        shape = list(column.shape)
        shape[axis_in(column, self._axis)] = self.capacity
        return column.new_empty(shape)

    def _check(self, columns: dict[str, torch.Tensor]) -> None:
        known, given = (
            {name: self._kind(column) for name, column in each.items()}
            for each in (self._columns, columns)
        )
        for name in known | given:
            if known.get(name) != given.get(name):
                raise DataError(
                    f"a LocalReplay holds {name}: {known.get(name)}, but a batch has "
                    f"{given.get(name)} (without the axis of rows or streams)"
                )

    def _kind(self, column: torch.Tensor) -> list[Any]:
        """Returns type and shape, without the axis of rows or streams."""
        axis = axis_in(column, self._axis)
        return [str(column.dtype), [*column.shape[:axis], *column.shape[axis + 1 :]]]


def store(local: LocalReplay) -> Operator:
    """Returns an operator that stores each batch in a LocalReplay, and gives it back."""

    def keep(item: Any) -> Any:
        local.insert(batch_of(item))
        return item

    return Operator(f"store({local.capacity})", keep)


class DrawnLocally(Flow):
    """Source of batches of a LocalReplay; use `replay(local, batch_size=...)`."""

    counts_items = True

    def __init__(self, local: LocalReplay, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        super().__init__(f"replay({batch_size} of {local.capacity})")
        self._local = local
        self._batch_size = batch_size

    def pull(self) -> Any:
        """Returns a batch of its own memory, or STALLED."""
        return STALLED if self.waits_for() else self._count(self._local.sample(self._batch_size))

    def own_generators(self) -> tuple[Any, ...]:
        """Returns the generator of the LocalReplay."""
        return (self._local.generator,)

    def waits_for(self) -> str:
        """Returns how much the LocalReplay lacks."""
        size, least = len(self._local), self._local.min_size
        return "" if size >= least else f"min_size {least} in its LocalReplay, which holds {size}"


def mix_in(slots: int, proportion: float, seed: int = 0) -> Operator:
    """Returns an operator for `combine`: each item, then some items of a ring of earlier ones.

    Args:
        slots: items in the ring; the newest is stored first.
        proportion: replayed items for each new one; the fraction is a probability.
        seed: seed of the draws; in a run give `learner.seed`. Checkpoints have the state of their
            generator, but not the items.

    Raises:
        ValueError: a negative number, or a proportion above 0 without slots.
    """
    if slots < 0 or proportion < 0 or (proportion > 0 and not slots):
        raise ValueError(f"mix_in({slots}, {proportion}): a proportion above 0 needs slots")
    ring: deque[Any] = deque(maxlen=slots)
    rng = random.Random(seed)

    def mix(item: Any) -> list[Any]:
        if slots:
            ring.append(copy_item(item))
        whole, fraction = divmod(proportion, 1.0)
        count = int(whole) + (rng.random() < fraction)
        # Copies, because later operators add columns.
        return [item, *(copy_item(ring[rng.randrange(len(ring))]) for _ in range(count))]

    return Operator(f"mix_in({slots}, {proportion:g})", mix, generators=(rng,))
