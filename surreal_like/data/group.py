"""The learners that make one update together; here the group of one, which exchanges nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Take = Callable[[], tuple[Any, int]]


class Group:
    """A learner as one of several ranks, each of which learns from a part of every batch.

    All ranks call the same methods in the same order. :meth:`sum`, :meth:`gather` and :meth:`means`
    are one exchange, :meth:`join` is two; after it all ranks have the same bits.

    Attributes:
        rank: number of this rank; rank 0 owns the run.
        size: number of ranks.
    """

    rank = 0
    size = 1

    def sum(self, numbers: Numbers, what: str) -> Numbers:
        """Returns the sum over all ranks, added in the order of ranks.

        Args:
            numbers: numbers of this rank; shape and dtype are the same on all ranks.
            what: their name, for messages; the same on all ranks.
        """
        return numbers

    def gather(self, numbers: Numbers, what: str) -> Numbers:
        """Returns the numbers ``[*shape]`` of all ranks, ``[size, *shape]``."""
        if self.size == 1:
            return numbers[None]
        every = np.zeros((self.size, *numbers.shape), numbers.dtype)
        every[self.rank] = numbers
        return self.sum(every, what)

    def join(self, rows: Numbers, what: str) -> Numbers:
        """Returns the rows ``[M, ...]`` of all ranks, one after the other; M may differ."""
        if self.size == 1:
            return rows
        sizes = self.gather(np.array([len(rows)]), f"sizes of {what}")[:, 0]
        every = np.zeros((int(sizes.sum()), *rows.shape[1:]), rows.dtype)
        first = int(sizes[: self.rank].sum())
        every[first : first + len(rows)] = rows
        return self.sum(every, what)

    def means(self, values: Mapping[str, float], rows: int, what: str) -> dict[str, float]:
        """Returns the means of values over all ranks, weighted by their rows; NaN without rows."""
        if self.size == 1:
            return dict(values)
        weighted = [value * rows if rows else 0.0 for value in values.values()]
        *sums, count = self.sum(np.array([*weighted, rows], np.float64), what).tolist()
        means = (each / count if count else math.nan for each in sums)
        return dict(zip(values, means, strict=True))

    def turn(self, progress: Mapping[str, Sequence[int]]) -> AbstractContextManager[None]:
        """Returns the context in which all ranks pull the plan once.

        Args:
            progress: policy -> updates of its parameters, and environment steps that they have
                learned from.
        """
        return _NOTHING

    def scatter(self, take: Take) -> tuple[Any, int]:
        """Returns the part of this rank of the next batch, and the environment steps with it.

        Args:
            take: returns the whole batch, or a signal, and the steps; called on rank 0 only.
        """
        return take()


_NOTHING: AbstractContextManager[None] = nullcontext()
_ALONE = Group()
_GROUP: ContextVar[Group] = ContextVar("group", default=_ALONE)
# The group of the calling thread: operators of plans have no other way to it, since an author who
# forgot to pass it on would make ranks differ.
group: Callable[[], Group] = _GROUP.get


@contextmanager
def within(of: Group) -> Iterator[None]:
    """Makes a group that of this thread."""
    token = _GROUP.set(of)
    try:
        yield
    finally:
        _GROUP.reset(token)
