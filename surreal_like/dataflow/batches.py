"""Operators on batches, and the rows of unrolls and sequences that are learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from session import nest
from surreal_like.data.batch import Batch, make_batch
from surreal_like.data.group import group
from surreal_like.dataflow.flow import Operator
from surreal_like.dataflow.items import Joined, axis_in, axis_of, batch_of, columns_of, copy_item
from surreal_like.errors import DataError
from surreal_like.loss.policy import masked_sums, normalize_advantages

# Columns of the policy that acted.
_OF_POLICY = ("logits", "mean", "log_std", "alpha", "beta")


class View(Batch):
    """Columns of another batch, each changed by a function when it is read first.

    Args:
        columns: the batch, or its extras.
        pick: changes one tensor.
    """

    def __init__(
        self, columns: Mapping[str, Any], pick: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self._columns = columns
        self._pick = pick

    def __missing__(self, name: str) -> Any:
        """Makes a column; raises KeyError if there is none."""
        column = self._columns[name]
        if isinstance(column, torch.Tensor):
            seen: Any = self._pick(column)
        else:
            seen = View(column, self._pick) if name == "extras" else nest.map(self._pick, column)
        self[name] = seen
        return seen

    def __contains__(self, name: object) -> bool:
        return name in self._columns or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._columns, *super().__iter__()]))

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a column, `default` if there is none."""
        try:
            return self[name]
        except KeyError:
            return default


def rows_of(batch: Batch) -> Batch:
    """Returns the rows of a batch that losses take in any order.

    Of unrolls they are the rows with an action, `[M, ...]`; with a memory the whole streams
    `[T, B, ...]`, without the row after the last. Rows are returned as they are. Where no row has
    an action it is one row of mask 0: networks need a row.
    """
    if not axis_of(batch):
        return batch
    steps = len(batch["rewards"])
    if "memory" in batch.extras:
        return View(batch, lambda x: x[:steps])
    keep = batch.mask.flatten().nonzero().squeeze(1)
    keep = keep if len(keep) else keep.new_zeros(1)
    return View(batch, lambda x: x[:steps].flatten(0, 1)[keep])


def parts_of(
    rows: Batch, count: int, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Yields rows in random order, in parts that differ by one row at most, with their places.

    With a memory, whole streams are shuffled and divided instead of rows.

    In a group of learners the rows of all ranks are shuffled, in the order that rank 0 draws, and a
    rank gets those of each part that are its own. Where it has none, the places are empty, and the
    part is its first row, if there is one, which does not count.
    """
    axis, rewards = axis_of(rows), rows["rewards"]
    size = rewards.shape[axis]
    for index in _order(size, count, generator):
        here = index.to(rewards.device)
        seen = here if len(here) or not size else here.new_zeros(1)
        yield here, View(rows, lambda x, index=seen: x.index_select(axis, index))  # type: ignore[misc]


def _order(size: int, count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yields the places of the rows of each part."""
    together = group()
    sizes = together.gather(np.array([size]), "rows")[:, 0].tolist()
    order = torch.randperm(sum(sizes), generator=generator, device=generator.device)
    if together.size > 1:
        drawn = order.cpu().numpy()
        # That of rank 0: the others add nothing.
        order = torch.from_numpy(together.sum(drawn * (together.rank == 0), "order"))
    first = sum(sizes[: together.rank])
    for index in order.tensor_split(min(count, len(order))):
        if together.size > 1:
            index = index[(first <= index) & (index < first + size)] - first
        yield index


def state_before(batch: Batch) -> torch.Tensor | None:
    """Returns the memory before the first row of a batch, `[B, state_size]`; None without one."""
    return batch.extras["memory"][0] if "memory" in batch.extras else None


def inputs_before(batch: Batch) -> dict[str, torch.Tensor]:
    """Returns the arguments `actions` and `rewards` of `unroll`; none without `memory_inputs`."""
    if "prev_rewards" not in batch:
        return {}
    return {"actions": batch.actions, "rewards": batch.prev_rewards}


def policy_columns(batch: Batch) -> dict[str, torch.Tensor]:
    """Returns the columns of the policy that acted."""
    return {name: batch.extras[name] for name in _OF_POLICY if name in batch.extras}


def flat_actions(actions: torch.Tensor, lead: int = 2) -> torch.Tensor:
    """Returns actions in the shape of networks: continuous ones `[T, B, size]`.

    Args:
        actions: `[T, B, ...]`, or `[M, ...]` of rows.
        lead: number of axes before those of one action.
    """
    continuous = actions.is_floating_point() and actions.dim() > lead
    return actions.flatten(lead) if continuous else actions


def standardize(*fields: str, sample: bool = False) -> Operator:
    """Returns an operator that shifts and scales columns to mean 0 and standard deviation 1.

    Over the elements of mask 1 of the whole item, so it belongs behind `concat`; elsewhere the
    result is 0. A field is a column of the batch, or one of its extras. In a group of learners it
    is over the elements of all ranks.

    Args:
        fields: names of the columns.
        sample: True for the deviation of a sample of n, whose squares are divided by n - 1.
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
            given = torch.ones_like(column) if mask is None else mask
            place[name] = normalize_advantages(column, given, sums_of_all, sample=sample)
        return item

    return Operator(f"standardize({', '.join(fields)})", apply)


def sums_of_all(x: torch.Tensor, mask: torch.Tensor) -> Sequence[torch.Tensor]:
    """Returns the `masked_sums` over all ranks of the group."""
    together, sums = group(), masked_sums(x, mask)
    if together.size == 1:
        return sums
    found = together.sum(torch.stack(sums).double().cpu().numpy(), "sums")
    return x.new_tensor(found).unbind()


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
        collected.append(copy_item(batch))
        if sum(each.rows for each in collected) < min_rows:
            return []
        joined = _join(collected)
        collected.clear()
        return [joined]

    return Operator(f"concat({min_rows})", collect)


def _join(batches: list[Batch]) -> Batch:
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
    joined.origin, joined.whole = Joined.of(batches), sum(batch.whole for batch in batches)
    return joined
