"""Batches for `learn()`: dictionaries of batched tensors with attribute access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt

from session import nest
from surreal_like.errors import MissingColumn

Columns = dict[str, npt.NDArray[Any]]
# (columns of one reply of replay, number of batches) -> the columns of each batch, in turn.
Collate = Callable[[Mapping[str, npt.NDArray[Any]], int], Iterable[Columns]]


class Place(NamedTuple):
    """Place of a draw in the recording of a shard.

    Attributes:
        rows: rows that the shard had inserted.
        cuts: roll-backs before it.
        unrolls: rows that it had inserted before each unroll of the batch; empty for other batches.
    """

    rows: int
    cuts: int
    unrolls: Sequence[int] = ()


@dataclass(slots=True)
class Sampled:
    """One batch as received: columns ``[B, ...]``, its shard, and its time stamps.

    ``last`` is True for the last batch of a training iteration, None without iterations.
    ``returns`` has the moments of returns that the shard has counted; None unless rewards are
    normalized. ``env_steps`` are those that the shard has reported; None for no batch of replay.
    ``place`` is that of the draw in the recording of the shard; None without one.
    """

    columns: Columns
    shard: int
    incarnation: int
    stamps: Mapping[str, float]
    last: bool | None = None
    returns: Sequence[float] | None = None
    env_steps: Sequence[int] | None = None
    place: Place | None = None


class Batch(dict[str, Any]):
    """A batch of experience, such as ``batch.rewards``.

    Keys: ``obs``, ``obs_next`` (nests), ``actions``, ``rewards`` (the n-step sum), ``discounts``
    (factor of the bootstrap value, gamma included), ``dones`` (1 where the transition ends in
    a termination), ``weights``, ``indices``, ``version``, ``extras``; leaves begin with ``[B]``.

    Attributes:
        origin: the reply of replay that it was made of; None for any other batch.
        whole: rows of the batch that this is one rank's part of, as replay counts them; 0: it is
            no part.
        policy: policy whose rows they are; empty if unknown.
    """

    origin: Any = None
    whole: int = 0
    policy: str = ""

    @property
    def rows(self) -> int:
        """Number of rows that an action was taken from."""
        mask = self.get("mask")
        return len(self["rewards"]) if mask is None else int((mask != 0).sum())

    def __missing__(self, name: str) -> Any:
        raise MissingColumn(f"the batch has no '{name}'; it has {', '.join(self)}")

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Extras(dict[str, Any]):
    """The columns ``extras/...`` of a batch: of the agent, and ``env_config.info_keys``."""

    def __missing__(self, name: str) -> Any:
        known = ", ".join(f"extras/{key}" for key in self) or "none below extras/"
        raise MissingColumn(f"the batch has no 'extras/{name}'; it has {known}")


def make_batch(columns: Mapping[str, Any]) -> Batch:
    """Makes a batch of columns, in which nests are flattened, such as ``obs/image``.

    Args:
        columns: name -> array or tensor, named as a ``batch`` message of replay names them.
    """
    batch = Batch()
    for name, column in columns.items():
        root, slash, _ = name.partition("/")
        if not slash:
            batch[name] = column
        elif root not in batch:
            batch[root] = nest.unflatten(columns, root)
    batch["extras"] = Extras(batch.get("extras", {}))
    return batch


def split(columns: Mapping[str, npt.NDArray[Any]], batches: int) -> list[Columns]:
    """Cuts columns ``[batches * B, ...]`` into ``batches`` groups of columns, as views.

    Raises:
        ValueError: a column cannot be cut into so many equal parts.
    """
    if batches == 1:
        return [dict(columns)]
    for name, column in columns.items():
        if len(column) % batches:
            raise ValueError(f"column '{name}' has {len(column)} rows for {batches} batches")
    # Plain slices: np.split takes longer than all other handling of a reply.
    return [
        {
            name: column[len(column) * i // batches : len(column) * (i + 1) // batches]
            for name, column in columns.items()
        }
        for i in range(batches)
    ]
