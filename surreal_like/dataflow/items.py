"""Items of a plan: what a loss gives, what an update leaves, and copies of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from session import nest
from surreal_like.data.batch import Batch, make_batch

# Columns of the received batch that are needed after its memory is used again.
_OF_ORIGIN = ("version", "indices", "replayed")


@dataclass(slots=True)
class Loss:
    """Result of a loss with metrics.

    Args:
        total: scalar; with several optimizers name of the optimizer -> scalar, in the order of
            the steps.
        metrics: name -> number or scalar tensor.
        priorities: priorities of the rows of the batch, `[B]`; None without.
    """

    total: torch.Tensor | Mapping[str, torch.Tensor]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    priorities: torch.Tensor | None = None


@dataclass(slots=True)
class Trained:
    """A batch that an update was made from.

    Args:
        batch: as it came.
        metrics: metrics of the update, by name; later operators add to them.
        priorities: priorities of the rows of the batch, `[B]`; None if the loss gave none.
        last_pass: means of the metrics of the last pass over the batch; None after a single step.
        size: number of rows that replay counts for it; 0: those of the batch.
    """

    batch: Batch
    metrics: dict[str, Any]
    priorities: torch.Tensor | None = None
    last_pass: Mapping[str, float] | None = None
    size: int = 0

    def __post_init__(self) -> None:
        self.size = self.size or size_of(self.batch)

    def follow(self, later: Trained, name: str, shared: Set[str]) -> Trained:
        """Adds a later step from the same batch to this update; returns this update.

        Args:
            later: the step.
            name: put before those of its metrics that this update has already.
            shared: metrics that replace those of this update.
        """
        for key, value in later.metrics.items():
            same = key in self.metrics and key not in shared
            self.metrics[f"{name}/{key}" if same else key] = value
        self.priorities = self.priorities if later.priorities is None else later.priorities
        self.last_pass = later.last_pass or self.last_pass
        return self


@dataclass(slots=True)
class Gradients:
    """Gradients of one batch, or the mean of several.

    Args:
        flat: `[P]`, the gradients of the named optimizers one after the other, not clipped.
        rows: number of rows with an action that they were computed from.
        version: version of the oldest parameters that acted in these rows; -1 if unknown.
        metrics: metrics of the loss.
        names: the optimizers.
        batch: the batch; None for a mean.
        size: number of rows that replay counts for them.
        clipped: True if an agent has made them, which clips them.
        priorities: new priorities of the rows of the loss, `[B]`; None if it gave none.
    """

    flat: torch.Tensor
    rows: int
    version: int = -1
    metrics: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    batch: Batch | None = None
    size: int = 0
    clipped: bool = False
    priorities: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Origin of a batch that was joined of several.

    Args:
        parts: origin, and number of rows or streams, of each; None: it did not come from replay.
    """

    parts: tuple[tuple[Any, int], ...]

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> Joined | None:
        """Returns the origin of batches that are joined in this order; None if none has one."""
        parts: list[tuple[Any, int]] = []
        for batch in batches:
            parts += parts_of_origin(batch)
        return cls(tuple(parts)) if any(origin is not None for origin, _ in parts) else None

    @property
    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Columns that all parts from replay have, of those that are needed later."""
        all_of = [origin.columns for origin, _ in self.parts if origin is not None]
        names = [name for name in _OF_ORIGIN if all(name in columns for columns in all_of)]
        # Streams are the last axis of these columns.
        return {name: np.concatenate([c[name] for c in all_of], axis=-1) for name in names}

    @property
    def stamps(self) -> Mapping[str, float]:
        """Time stamps of the newest part."""
        stamps: Mapping[str, float]
        *_, stamps = (origin.stamps for origin, _ in self.parts if origin is not None)
        return stamps


def parts_of_origin(batch: Batch) -> tuple[tuple[Any, int], ...]:
    """Returns origin, and number of rows or streams, of each batch that this one was joined of."""
    if isinstance(batch.origin, Joined):
        return batch.origin.parts
    return ((batch.origin, batch["rewards"].shape[axis_of(batch)] if "rewards" in batch else 0),)


def size_of(item: Any) -> int:
    """Returns the number of rows of an item as replay counts them, those without an action too."""
    if isinstance(item, Batch):
        rewards = item.get("rewards")
        return item.whole or (0 if rewards is None else math.prod(rewards.shape))
    if isinstance(item, Trained | Gradients):
        return item.size
    return sum(map(size_of, item)) if isinstance(item, list | tuple) else 0


def batch_of(item: Any) -> Batch:
    """Returns the batch of an item: itself, or that of an update."""
    batch: Batch = item.batch if isinstance(item, Trained) else item
    return batch


def axis_of(batch: Batch) -> int:
    """Returns the axis of independent parts: 0 of rows `[B, ...]`, 1 of unrolls `[T, B, ...]`."""
    return int(batch["rewards"].ndim - 1)


def axis_in(column: torch.Tensor, axis: int) -> int:
    """Returns the axis of independent parts in one column of a batch whose axis is `axis`.

    Some columns of unrolls have one element for each stream, `[B]`.
    """
    return min(axis, column.ndim - 1)


def columns_of(batch: Batch) -> dict[str, torch.Tensor]:
    """Returns the tensors by name, nests as `obs/<path>`; `make_batch` is the inverse."""
    columns: dict[str, torch.Tensor] = {}
    for name, column in batch.items():
        columns |= nest.flatten(column, name)
    return columns


def copy_item(item: Any) -> Any:
    """Returns an item with memory of its own; plain data is returned as it is."""
    if isinstance(item, torch.Tensor):
        return item.clone()
    if isinstance(item, np.ndarray):
        return item.copy()
    if isinstance(item, Batch):
        return _copy_batch(item)
    if isinstance(item, Trained):
        return replace(item, batch=copy_item(item.batch), metrics=dict(item.metrics))
    if isinstance(item, Gradients):
        return replace(
            item, flat=item.flat.clone(), metrics=dict(item.metrics), batch=copy_item(item.batch)
        )
    if isinstance(item, list | tuple):
        return type(item)(map(copy_item, item))
    return item


def _copy_batch(batch: Batch) -> Batch:
    copy = make_batch({name: column.clone() for name, column in columns_of(batch).items()})
    copy.origin, copy.whole = _copy_origin(batch.origin), batch.whole
    copy.policy = batch.policy
    return copy


def _copy_origin(origin: Any) -> Any:
    if origin is None:
        return None
    if isinstance(origin, Joined):
        return Joined(tuple((_copy_origin(each), size) for each, size in origin.parts))
    columns = origin.columns
    kept = {name: columns[name].copy() for name in _OF_ORIGIN if name in columns}
    return replace(origin, columns=kept)
