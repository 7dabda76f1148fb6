"""Sources of flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from surreal_like.dataflow.flow import Flow
from surreal_like.dataflow.local_replay import DrawnLocally, LocalReplay


def from_items(items: Iterable[Any]) -> Flow:
    """Returns the flow of some items, for tests and notebooks."""
    return _Items(items)


class _Items(Flow):
    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__("from_items")
        self._items = items
        self._rest: Iterator[Any] | None = None

    def pull(self) -> Any:
        if self._rest is None:
            self._rest = iter(self._items)
        return next(self._rest)


def replay(local: LocalReplay, *, batch_size: int) -> Flow:
    """Returns the flow of batches drawn from a LocalReplay.

    Raises ValueError for a batch size below 1.
    """
    return DrawnLocally(local, batch_size)
