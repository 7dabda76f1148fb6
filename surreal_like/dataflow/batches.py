"""Operators on batches: standardized columns, and several batches joined to one."""

from __future__ import annotations

from typing import Any

import torch

from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow.flow import Operator
from surreal_like.dataflow.items import Joined, axis_in, axis_of, batch_of, columns_of, copied
from surreal_like.errors import DataError
from surreal_like.loss.policy import normalized


def standardize(*fields: str) -> Operator:
    """Returns an operator that shifts and scales columns to mean 0 and standard deviation 1.

    Over the elements of mask 1 of the whole item, so it belongs behind `concat`; elsewhere the
    result is 0. A field is a column of the batch, or one of its extras.
    """

    def apply(item: Any) -> Any:
        batch = batch_of(item)
        for name in fields:
            place = batch if name in batch else batch.extras
            if name not in place:
                known = ", ".join([*batch, *(f"extras/{key}" for key in batch.extras)])
                raise DataError(f"standardize: the batch has no column '{name}'; it has {known}")
            column = place[name]
            mask = batch.get("mask")
            place[name] = normalized(column, torch.ones_like(column) if mask is None else mask)
        return item

    return Operator(f"standardize({', '.join(fields)})", apply)


def concat(min_rows: int) -> Operator:
    """Returns an operator for `combine`: joins whole batches until they have `min_rows` rows.

    Batches are never split, and empty ones are left out. Raises ValueError for less than 1 row.
    """
    if min_rows < 1:
        raise ValueError(f"concat({min_rows}): expected 1 row or more")
    collected: list[Batch] = []

    def collect(batch: Batch) -> list[Batch]:
        rows = batch.rows
        if not rows:
            return []
        if not collected and rows >= min_rows:
            return [batch]
        collected.append(copied(batch))
        if sum(each.rows for each in collected) < min_rows:
            return []
        joined = _joined(collected)
        collected.clear()
        return [joined]

    return Operator(f"concat({min_rows})", collect)


def _joined(batches: list[Batch]) -> Batch:
    """Returns one batch of several; raises DataError if columns or lengths of unrolls differ."""
    columns = [columns_of(batch) for batch in batches]
    axis = axis_of(batches[0])
    lengths = sorted({len(batch["rewards"]) for batch in batches})
    if axis and len(lengths) > 1:
        raise DataError(f"concat: unrolls of {lengths[0]} and of {lengths[-1]} steps")
    for other in columns[1:]:
        if other.keys() != columns[0].keys():
            names = ", ".join(sorted(other.keys() ^ columns[0].keys()))
            raise DataError(f"concat: not all batches have the columns {names}")
    joined = make_batch(
        {
            name: torch.cat([c[name] for c in columns], axis_in(column, axis))
            for name, column in columns[0].items()
        }
    )
    joined.origin = Joined.of(batches)
    return joined
