"""Selection of rows for a sample: what all selectors share, and the uniform choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session.errors import SurrealError
from session.nest import Array
from surreal_like.data.timestep import Flags
from surreal_like.replay.kept_memory import Zeros
from surreal_like.replay.storage import Rows, spans


class Sample(NamedTuple):
    """Rows at which the samples of a batch start.

    Attributes:
        numbers: row numbers, ``[B]`` int64.
        columns: further columns of the batch, ``[B]`` each: ``weights`` float32 and ``indices``
            int64, the numbers, of draws with replacement; ``replayed`` bool of a queue, True for
            samples that were drawn before.
    """

    numbers: Rows
    columns: Mapping[str, Array]

    @property
    def fresh(self) -> int:
        """Number of samples that count as sampled now."""
        replayed = self.columns.get("replayed")
        return len(self.numbers) - (0 if replayed is None else int(np.count_nonzero(replayed)))

    @classmethod
    def of(cls, numbers: Rows, weights: npt.NDArray[np.float32] | None = None) -> Sample:
        """Returns drawn rows with their weights, ``[B]``; None: all are 1."""
        if weights is None:
            weights = np.ones(len(numbers), np.float32)
        return cls(numbers, {"weights": weights, "indices": numbers})


class Selector(ABC):
    """Keeps the set of sampleable rows, those at which a sample may start, and draws from it.

    Args:
        seed: seeds the generator.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)

    @abstractmethod
    def __len__(self) -> int:
        """Number of sampleable rows."""

    @property
    def drawable(self) -> int:
        """Number of these that may be drawn now."""
        return len(self)

    @property
    def mass(self) -> float:
        """Sum of their weights, which is comparable to that of another shard; here all are 1."""
        return float(len(self))

    @abstractmethod
    def mark(self, first: int, ready: Flags) -> None:
        """Adds new rows, numbered from ``first`` on; ``ready`` flags the sampleable ones."""

    @abstractmethod
    def mark_earlier(self, numbers: Rows) -> None:
        """Marks earlier rows, none of them marked before, as sampleable."""

    def add(self, numbers: Rows, ready: Flags, earlier: Rows) -> None:
        """Adds a chunk.

        Args:
            numbers: numbers of its rows, ``[T, N]``, rising along time first.
            ready: flags its sampleable rows, ``[T, N]``.
            earlier: numbers of earlier rows that it has made sampleable, ``[M]``.
        """
        self.mark(int(numbers[0, 0]), ready)
        self.mark_earlier(earlier)

    @abstractmethod
    def unmark(self, numbers: Rows) -> int:
        """Marks existing rows, each once, as not sampleable; returns how many of them were."""

    @abstractmethod
    def evict(self, oldest: int) -> int:
        """Removes rows older than ``oldest``; returns how many of them were sampleable."""

    @abstractmethod
    def list_rows(self) -> Rows:
        """Returns the numbers of all sampleable rows."""

    def fresh(self, batch_size: int) -> int:
        """Returns how many sampleable rows a batch of this size needs."""
        return batch_size

    @abstractmethod
    def sample(self, batch_size: int) -> Sample:
        """Draws rows.

        Raises:
            SurrealError: there are too few.
        """

    def drop_older(self, version: int) -> int:
        """Drops samples that an older version acted in, if the selector gives each only once.

        Returns:
            Number of samples that were dropped.
        """
        return 0

    def undo_sample(self) -> None:  # noqa: B027 - most selectors give a row again and again
        """Puts the samples of the newest draw back, if the selector gives each only once."""

    def update(  # noqa: B027 - most selectors have no priorities
        self, numbers: Rows, priorities: npt.NDArray[np.float32]
    ) -> None:
        """Sets priorities of rows; a selector without priorities ignores them."""

    def reseed(self, seed: int) -> None:
        """Starts a new random generator."""
        self._generator = np.random.default_rng(seed)

    def statistics(self) -> dict[str, float]:
        """Returns numbers for metrics, in addition to those of every replay."""
        return {}

    def keep_in(self, zeros: Zeros) -> None:  # noqa: B027 - most can be made anew from the rows
        """Puts what cannot be made anew into arrays that outlive the process; before any row."""

    def counts(self) -> dict[str, Any]:
        """Returns the plain values that :meth:`recall` needs beside such arrays."""
        return {}

    def recall(self, counts: Mapping[str, Any], numbers: Rows) -> dict[str, Any]:
        """Returns the state of rows, of what :meth:`counts` gave and of what is in the arrays."""
        return {**Selector.state(self), **counts}

    def state(self) -> dict[str, Any]:
        """Returns what :meth:`restore` needs beside the rows: here the generator."""
        return {"generator": self._generator.bit_generator.state}

    @abstractmethod
    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on."""


class RingSelector(Selector):
    """Draws from a ring with one entry per row, which is off where the row is not sampleable.

    A subclass is one such ring (:meth:`_fill`, :meth:`_put`, :meth:`_clear`, :meth:`is_ready`) and
    one way to draw from it (:meth:`_draw`).

    Args:
        capacity: bound on the rows that exist at once.
        seed: seeds the generator.
    """

    def __init__(self, capacity: int, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._slots = 1 << max(capacity - 1, 0).bit_length()
        self._oldest = 0
        self._next_number = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @abstractmethod
    def is_ready(self, numbers: Rows) -> Flags:
        """True where an existing row is sampleable."""

    @abstractmethod
    def _fill(self, slots: slice, entries: Any) -> None:
        """Sets the entries of new rows, 0 where they are off."""

    @abstractmethod
    def _put(self, slots: Rows, ready: bool) -> None:
        """Sets the entries of some rows, each once."""

    @abstractmethod
    def _clear(self, slots: slice) -> int:
        """Returns how many entries of removed rows were on; later rows write over them."""

    @abstractmethod
    def _draw(self, batch_size: int) -> Sample:
        """Draws rows; some are sampleable."""

    def mark(self, first: int, ready: Flags) -> None:
        self._mark(first, ready.reshape(-1))

    def _mark(self, first: int, entries: npt.NDArray[Any]) -> None:
        for slots, part in spans(first, len(entries), self._slots):
            self._fill(slots, entries[part])
        self._size += int(np.count_nonzero(entries))
        self._next_number = first + len(entries)

    def mark_earlier(self, numbers: Rows) -> None:
        if len(numbers):
            self._put(numbers & (self._slots - 1), True)
            self._size += len(numbers)

    def unmark(self, numbers: Rows) -> int:
        gone = int(np.count_nonzero(self.is_ready(numbers)))
        if gone:
            self._put(numbers & (self._slots - 1), False)
            self._size -= gone
        return gone

    def evict(self, oldest: int) -> int:
        end = min(max(oldest, self._oldest), self._next_number)
        gone = 0
        for slots, _ in spans(self._oldest, end - self._oldest, self._slots):
            gone += self._clear(slots)
        self._oldest = end
        self._size -= gone
        return gone

    def list_rows(self) -> Rows:
        numbers = np.arange(self._oldest, self._next_number)
        return numbers.compress(self.is_ready(numbers))

    def sample(self, batch_size: int) -> Sample:
        """Draws rows, with replacement; raises SurrealError if none is sampleable."""
        if not self._size:
            raise SurrealError("no row can be sampled yet: ask start_sample_condition() first")
        return self._draw(batch_size)

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        self._size, self._oldest = 0, oldest
        self.mark(oldest, ready)
        self._generator.bit_generator.state = state["generator"]


class UniformSelector(RingSelector):
    """Draws sampleable rows uniformly, with replacement; all weights are 1.

    A ring of bits flags the sampleable rows. Rows are drawn from the whole range and drawn
    again where the bit is off, which is exact, and fast as long as most rows are sampleable; where
    few are, they are listed first.
    """

    def __init__(self, capacity: int, *, seed: int = 0) -> None:
        super().__init__(capacity, seed=seed)
        self._bits = np.zeros(self._slots, np.bool_)

    def is_ready(self, numbers: Rows) -> Flags:
        return self._bits.take(numbers & (self._slots - 1))

    def _fill(self, slots: slice, entries: Flags) -> None:
        self._bits[slots] = entries

    def _put(self, slots: Rows, ready: bool) -> None:
        self._bits[slots] = ready

    def _clear(self, slots: slice) -> int:
        return int(np.count_nonzero(self._bits[slots]))

    def _draw(self, batch_size: int) -> Sample:
        return Sample.of(self._choose(batch_size))

    def _choose(self, batch_size: int) -> Rows:
        span = self._next_number - self._oldest
        tries = int(1.1 * batch_size * span / self._size) + 8
        if tries > span:
            listed = self.list_rows()
            return listed[self._integers(len(listed), batch_size)]
        kept = self._try(tries, span)
        while len(kept) < batch_size:
            kept = np.concatenate([kept, self._try(tries, span)])
        return kept[:batch_size]

    def _try(self, tries: int, span: int) -> Rows:
        numbers = self._integers(span, tries) + self._oldest
        return numbers.compress(self.is_ready(numbers))

    def _integers(self, end: int, rows: int) -> Rows:
        # twice as fast as Generator.integers, and as uniform while 2**53 is far above `end`
        return (self._generator.random(rows) * end).astype(np.int64)
