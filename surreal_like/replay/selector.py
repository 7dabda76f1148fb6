"""Selection of rows for a sample: every sampleable row with the same probability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from session.errors import SurrealError
from surreal_like.replay.ring import spans
from surreal_like.replay.stream_table import Rows


class Sample(NamedTuple):
    """Row numbers, ``[B]`` int64, and importance weights, ``[B]`` float32."""

    numbers: Rows
    weights: npt.NDArray[np.float32]


class Selector(Protocol):
    """Keeps the set of sampleable rows, and draws from it."""

    def __len__(self) -> int:
        """Number of sampleable rows."""
        ...

    @property
    def drawable(self) -> int:
        """Number of these that may be drawn now."""
        ...

    @property
    def mass(self) -> float:
        """Sum of their weights, which is comparable to that of another shard."""
        ...

    def mark(self, first: int, ready: npt.NDArray[np.bool_]) -> None:
        """Adds new rows, numbered from ``first`` on; ``ready`` flags the sampleable ones."""
        ...

    def mark_earlier(self, numbers: Rows) -> None:
        """Marks earlier rows, none of them marked before, as sampleable."""
        ...

    def unmark(self, numbers: Rows) -> int:
        """Marks existing rows, each once, as not sampleable; returns how many of them were."""
        ...

    def evict(self, oldest: int) -> int:
        """Removes rows older than ``oldest``; returns how many of them were sampleable."""
        ...

    def sample(self, batch_size: int) -> Sample:
        """Draws rows."""
        ...

    def reseed(self, seed: int) -> None:
        """Starts a new random generator."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns what :meth:`restore` needs beside the rows."""
        ...

    def restore(self, state: Mapping[str, Any], oldest: int, ready: npt.NDArray[np.bool_]) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on."""
        ...


class UniformSelector:
    """Draws sampleable rows uniformly, with replacement.

    A ring of bits flags the sampleable rows. Rows are drawn from the whole range and drawn
    again where the bit is off, which is exact, and fast as long as most rows are sampleable; where
    few are, they are listed first.

    Args:
        capacity: at least the most rows that exist at once.
        seed: of the generator.
    """

    def __init__(self, capacity: int, *, seed: int = 0) -> None:
        self._bits = np.zeros(1 << max(capacity - 1, 0).bit_length(), np.bool_)
        self._mask = len(self._bits) - 1
        self._oldest = 0
        self._next_number = 0
        self._size = 0
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Number of sampleable rows."""
        return self._size

    @property
    def drawable(self) -> int:
        """Number of sampleable rows: all may be drawn."""
        return self._size

    @property
    def mass(self) -> float:
        """Number of sampleable rows: all weights are 1."""
        return float(self._size)

    def mark(self, first: int, ready: npt.NDArray[np.bool_]) -> None:
        """Adds new rows, numbered from ``first`` on; ``ready`` flags the sampleable ones."""
        flags = ready.reshape(-1)
        for slots, part in spans(first, len(flags), len(self._bits)):
            self._bits[slots] = flags[part]
        self._size += int(np.count_nonzero(flags))
        self._next_number = first + len(flags)

    def mark_earlier(self, numbers: Rows) -> None:
        """Marks earlier rows, none of them marked before, as sampleable."""
        self._bits[numbers & self._mask] = True
        self._size += len(numbers)

    def unmark(self, numbers: Rows) -> int:
        """Marks existing rows, each once, as not sampleable; returns how many of them were."""
        gone = int(np.count_nonzero(self.is_ready(numbers)))
        self._bits[numbers & self._mask] = False
        self._size -= gone
        return gone

    def evict(self, oldest: int) -> int:
        """Removes rows older than ``oldest``; returns how many of them were sampleable."""
        end = min(max(oldest, self._oldest), self._next_number)
        gone = 0
        for slots, _ in spans(self._oldest, end - self._oldest, len(self._bits)):
            gone += int(np.count_nonzero(self._bits[slots]))
        self._oldest = end  # their bits are written over by the rows that take their slots
        self._size -= gone
        return gone

    def is_ready(self, numbers: Rows) -> npt.NDArray[np.bool_]:
        """True where an existing row is sampleable."""
        return self._bits.take(numbers & self._mask)

    def sample(self, batch_size: int) -> Sample:
        """Draws rows; all weights are 1.

        Raises:
            SurrealError: no row is sampleable.
        """
        if not self._size:
            raise SurrealError("no row can be sampled yet: ask start_sample_condition() first")
        weights = np.ones(batch_size, np.float32)
        return Sample(self._draw(batch_size), weights)

    def _draw(self, batch_size: int) -> Rows:
        span = self._next_number - self._oldest
        tries = int(1.1 * batch_size * span / self._size) + 8
        if tries > span:
            listed = self._listed()
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

    def _listed(self) -> Rows:
        numbers = np.arange(self._oldest, self._next_number)
        return numbers.compress(self.is_ready(numbers))

    def reseed(self, seed: int) -> None:
        """Starts a new random generator."""
        self._generator = np.random.default_rng(seed)

    def state(self) -> dict[str, Any]:
        """The generator, as plain values; the flags are computed from the rows."""
        return {"generator": self._generator.bit_generator.state}

    def restore(self, state: Mapping[str, Any], oldest: int, ready: npt.NDArray[np.bool_]) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on."""
        self._size = 0
        self._oldest = oldest
        self.mark(oldest, ready)
        self._generator.bit_generator.state = state["generator"]
