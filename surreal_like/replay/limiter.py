"""Decides when rows go in and out, by a rate, in turns or as a queue; uses no clock, no socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.replay.kept_memory import Zeros
from surreal_like.replay.select.selector import Sample, Selector
from surreal_like.replay.storage import Rows

_TOLERANCE_SHARE = 0.1  # the tolerance is at least this share of the samples due at the start


class Limiter:
    """Relates the rate of sampling to the rate of inserting. All counts are of sampleable rows.

    Sampling starts at ``min_size`` rows. From then on ``samples_per_insert x inserted - sampled``
    stays within ``tolerance`` of its value at the start: above the band inserts wait for samples,
    below it samples wait for inserts. While there are fewer than ``min_size`` rows, inserts are
    always allowed, and the balance is limited to the upper end of the band.

    Args:
        min_size: rows required for sampling.
        samples_per_insert: mean number of samples of each row, 0 for no limit.
        chunk_rows: most rows that one insert can make sampleable.
        request_rows: most rows that one request samples.

    Attributes:
        tolerance: half the width of the band in sampled rows; chosen so that nothing deadlocks.
        first: rows to insert in addition before the first training; 0 where there are no turns.
        training: whether it trains now, so that no row may go.
        over: whether the newest batch was the last one of a training; None without turns.
    """

    first = 0
    training = False
    over: bool | None = None

    def __init__(
        self,
        min_size: int = 1,
        samples_per_insert: float = 0.0,
        *,
        chunk_rows: int = 1,
        request_rows: int = 1,
    ) -> None:
        # An empty replay cannot be sampled, whatever the setting.
        self.min_size = max(min_size, 1)
        self.samples_per_insert = samples_per_insert
        self.inserted = 0
        self.sampled = 0
        self.size = 0
        self.started = False
        self._chunk_rows = chunk_rows
        self._request_rows = request_rows
        self._balance = 0.0
        # For a process that goes on with the rows: batches go out between two commits.
        self._sampled_word: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._choose_tolerance()

    def _choose_tolerance(self) -> None:
        least = self.samples_per_insert * self._chunk_rows + self._request_rows
        # Below `least` an insert could wait for samples while the samples wait for that insert.
        self.tolerance = max(2 * least, _TOLERANCE_SHARE * self._due_at_start)

    @property
    def _due_at_start(self) -> float:
        return self.samples_per_insert * self.min_size

    def require_start(self, rows_seen: int, capacity: int) -> None:
        """Raises ConfigError if twice the capacity of rows has come and sampling has not started.

        The last row of an episode cannot be sampled either, and the number of such rows is known
        only when they have come.
        """
        if not self.started and rows_seen >= 2 * capacity:
            raise ConfigError(
                f"min_size is {self.min_size}, but after {rows_seen} rows only {self.size} of the"
                f" {capacity} rows kept can be sampled (episodes are short): sampling would never"
                " start; lower min_size or raise the capacity"
            )

    def expect(self, *, chunk_rows: int = 0, request_rows: int = 0) -> None:
        """Adapts to larger chunks or requests than announced: widens the band."""
        if chunk_rows > self._chunk_rows or request_rows > self._request_rows:
            self._chunk_rows = max(chunk_rows, self._chunk_rows)
            self._request_rows = max(request_rows, self._request_rows)
            self._choose_tolerance()

    def can_insert(self) -> bool:
        """True if an insert that makes as many rows sampleable as the largest is allowed."""
        # Below min_size no request is answered: an insert would wait for its samples for ever.
        if not self.samples_per_insert or self.size < self.min_size:
            return True
        added = self.samples_per_insert * self._chunk_rows
        return self._balance + added <= self._due_at_start + self.tolerance

    def can_sample(self, rows: int = 0) -> bool:
        """True if a request for ``rows`` rows (0: the largest) may be answered now."""
        if self.size < self.min_size:
            return False
        if not self.samples_per_insert:
            return True
        taken = rows or self._request_rows
        return self._balance - taken >= self._due_at_start - self.tolerance

    def needed(self, rows: int) -> int:
        """Returns how many sampleable rows a request for ``rows`` waits for; 0 if for none."""
        return self.min_size if self.size < self.min_size else 0

    def draw(self, selector: Selector, rows: int) -> Sample:
        """Draws the next batch from a selector, of ``rows`` rows."""
        return selector.sample(rows)

    def insert(self, rows: int, stored: int = 0) -> None:
        """Counts rows that have become sampleable, and those stored with them."""
        self.inserted += rows
        self.size += rows
        # Never reset: after evictions below min_size inserts reach it again.
        self.started = self.started or self.size >= self.min_size
        # Rows that replace evicted ones below min_size owe no samples: else agents would wait for
        # samples of rows that are gone.
        highest = self._due_at_start + self.tolerance
        self._balance = min(self._balance + self.samples_per_insert * rows, highest)

    def sample(self, rows: int) -> None:
        """Counts rows that have been sampled."""
        self._sampled_word[0] = self.sampled = self.sampled + rows
        self._balance -= rows

    def evict(self, rows: int) -> None:
        """Counts sampleable rows that were evicted."""
        self.size -= rows

    def end_training(self) -> bool:
        """Ends a training; returns True if the rows that were learned from are to be removed."""
        return False

    def abandon(self) -> None:
        """Ends a training, and collects all its rows anew."""

    def reseed(self, seed: int) -> None:
        """Draws orders of rows, if it draws any, with another seed from now on."""

    def keep_in(self, zeros: Zeros) -> None:
        """Counts sampled rows in memory that outlives the process; before any row."""
        self._sampled_word = zeros("sampled", (1,), np.int64)

    def adopt(self, counts: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave, and counts what was sampled since."""
        sampled = int(self._sampled_word[0])
        self.restore(counts)
        self.sample(max(0, sampled - self.sampled))

    def state(self) -> dict[str, Any]:
        """The counts, as plain values."""
        # Counts only: a resumed run may have another tolerance or samples_per_insert.
        return {
            "inserted": self.inserted,
            "sampled": self.sampled,
            "size": self.size,
            "started": self.started,
            "balance": self._balance,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave."""
        self.inserted = state["inserted"]
        self.sampled = state["sampled"]
        self.size = state["size"]
        self.started = state["started"]
        self._balance = state["balance"]


class Queue(Limiter):
    """Gives each sample once, and lets samples in while few enough wait.

    Args:
        room: returns how many may wait; infinity where the oldest make room.
    """

    def __init__(self, room: Callable[[], float]) -> None:
        super().__init__()
        self._room = room

    def can_insert(self) -> bool:
        """True while there is room."""
        return self.size < self._room()

    def can_sample(self, rows: int = 0) -> bool:
        """True if so many samples wait."""
        return self.size >= rows

    def needed(self, rows: int) -> int:
        """All of them: none is given again."""
        return rows


class Turns(Limiter):
    """Training iterations: collects rows, then gives batches of them, in turns.

    It collects until enough rows have been stored since the last training, and something can be
    sampled; then it trains: nothing goes in until the last batch has gone out. With ``whole`` a
    batch is the next part of all sampleable rows in a random order, another one in each pass.

    Args:
        collect: rows to store before each training.
        first: rows to store in addition before the first one.
        updates: batches of a training; with ``whole`` passes over all sampleable rows.
        whole: whether a training consists of such passes.
        clear: whether its rows are removed after it.
        seed: seeds the orders of passes.

    Attributes:
        number: trainings that have ended.
    """

    def __init__(
        self,
        collect: int,
        *,
        first: int = 0,
        updates: int = 1,
        whole: bool = False,
        clear: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.number = 0
        self.first, self._collect, self._updates = first, collect, updates
        self._whole, self._clear = whole, clear
        self._stored = 0
        self._sizes: deque[int] = deque()
        # What is left of the present pass.
        self._order: Rows = np.zeros(0, np.int64)
        self.over = False
        self.reseed(seed)

    @property
    def due(self) -> int:
        """Rows to store before the next training."""
        return self._collect + (0 if self.number else self.first)

    def can_insert(self) -> bool:
        """True while it collects."""
        return not self.training and (self._stored < self.due or not self.size)

    def can_sample(self, rows: int = 0) -> bool:
        """True while it trains, or if a training may begin."""
        return self.training or (self._stored >= self.due and self.size > 0)

    def insert(self, rows: int, stored: int = 0) -> None:
        """Counts rows that have become sampleable, and stored ones."""
        super().insert(rows)
        self._stored += stored

    def draw(self, selector: Selector, rows: int) -> Sample:
        """Draws the next batch of the training, of about ``rows``; the first one begins it."""
        if not self.training:
            one_pass = split_evenly(len(selector), rows) if self._whole else [rows]
            self._sizes.extend(one_pass * self._updates)
            self.training = True
        size = self._sizes.popleft()
        self.over = not self._sizes
        if not self._whole:
            return selector.sample(size)
        if not len(self._order):
            self._order = self._generator.permutation(selector.list_rows())
        numbers, self._order = self._order[:size], self._order[size:]
        return Sample.of(numbers)

    def end_training(self) -> bool:
        self.number += 1
        self._stored, self.training, self.over = 0, False, False
        return self._clear

    def abandon(self) -> None:
        self._sizes.clear()
        self._order = self._order[:0]
        self._stored, self.training, self.over = 0, False, False

    def reseed(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def turn_state(self) -> dict[str, Any]:
        """The counts of the turn, as plain values."""
        return {
            "number": self.number,
            "training": self.training,
            "inserted": self._stored,
            "sizes": [*self._sizes],
        }

    def order_state(self) -> dict[str, Any]:
        """The order that is left of a pass, and the generator of orders."""
        return {"order": self._order, "of_orders": self._generator.bit_generator.state}

    def restore_turn(self, turn: Mapping[str, Any], order: Mapping[str, Any]) -> None:
        """Restores what :meth:`turn_state` and :meth:`order_state` gave."""
        self.number, self.training = turn["number"], turn["training"]
        self._stored, self._sizes = turn["inserted"], deque(turn["sizes"])
        if "order" in order:
            self._order = np.asarray(order["order"], np.int64)
            self._generator.bit_generator.state = order["of_orders"]


def split_evenly(rows: int, batch_size: int) -> list[int]:
    """Returns the sizes of the batches of one pass: about ``batch_size``, almost equal."""
    if not rows:
        return []
    count = max(1, rows // batch_size)
    each, larger = divmod(rows, count)
    return [each + 1] * larger + [each] * (count - larger)
