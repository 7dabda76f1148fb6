"""Rows of batches: views that make a column when it is read, and parts in random order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from session import nest
from surreal_like.data.batch import Batch
from surreal_like.dataflow.items import axis_of

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
    `[T, B, ...]`, without the row after the last. Rows are returned as they are.
    """
    if not axis_of(batch):
        return batch
    steps = len(batch["rewards"])
    if "memory" in batch.extras:
        return View(batch, lambda x: x[:steps])
    keep = batch.mask.flatten().nonzero().squeeze(1)
    return View(batch, lambda x: x[:steps].flatten(0, 1)[keep])


def parts_of(
    rows: Batch, count: int, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, Batch]]:
    """Yields rows in random order, in parts that differ by one row at most, with their places.

    With a memory, whole streams are shuffled and divided instead of rows.
    """
    axis, rewards = axis_of(rows), rows["rewards"]
    size = rewards.shape[axis]
    order = torch.randperm(size, generator=generator, device=generator.device).to(rewards.device)
    for index in order.tensor_split(min(count, size)):
        yield index, View(rows, lambda x, index=index: x.index_select(axis, index))  # type: ignore[misc]


def state_before(batch: Batch) -> torch.Tensor | None:
    """Returns the memory before the first row of a batch, `[B, state_size]`; None without one."""
    return batch.extras["memory"][0] if "memory" in batch.extras else None


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
