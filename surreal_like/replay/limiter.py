"""Decides when rows may be inserted and sampled; uses no clock and no socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.errors import ConfigError

_AUTO_SHARE = 0.1  # an automatic tolerance is at least this share of the samples due at the start


class Limiter:
    """Relates the rate of sampling to the rate of inserting. All counts are of sampleable rows.

    Sampling starts at ``min_size`` rows. From then on ``samples_per_insert x inserted - sampled``
    stays within ``tolerance`` of its value at the start: above the band inserts wait for samples,
    below it samples wait for inserts. While there are fewer than ``min_size`` rows, inserts are
    always allowed, and the balance is limited to the upper end of the band.

    Args:
        min_size: rows required for sampling.
        samples_per_insert: mean number of samples of each row, 0 for no limit.
        tolerance: half the width of the band in sampled rows, 0 to choose it; see
            :attr:`tolerance`.
        chunk_rows: most rows that one insert can make sampleable.
        request_rows: most rows that one request samples.

    Raises:
        ConfigError: the settings must deadlock; the message has the arithmetic.
    """

    def __init__(
        self,
        min_size: int,
        samples_per_insert: float = 0.0,
        tolerance: float = 0.0,
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
        self._wanted_tolerance = tolerance
        self._chunk_rows = chunk_rows
        self._request_rows = request_rows
        self._balance = 0.0
        self._choose_tolerance()

    def _choose_tolerance(self) -> None:
        least = self.samples_per_insert * self._chunk_rows + self._request_rows
        self.tolerance = self._wanted_tolerance
        if not self._wanted_tolerance:
            self.tolerance = max(2 * least, _AUTO_SHARE * self._due_at_start)
        elif self.samples_per_insert and self.tolerance < least:
            raise ConfigError(
                f"tolerance is {self.tolerance:g}, but samples_per_insert "
                f"{self.samples_per_insert:g} x {self._chunk_rows} rows of the largest chunk + "
                f"{self._request_rows} rows of one request = {least:g}: an insert could wait for "
                "samples while the samples wait for that insert; raise tolerance, or set it to 0 "
                "to have it chosen"
            )

    @property
    def _due_at_start(self) -> float:
        return self.samples_per_insert * self.min_size

    def require_room(
        self, capacity: int, unsampleable_rows: int, why: str = "", *, waiting: str = ""
    ) -> None:
        """Raises ConfigError if ``min_size`` rows can never be sampleable at once.

        Args:
            capacity: rows of the replay.
            unsampleable_rows: rows that wait for their successors: n for each stream.
            why: arithmetic of the capacity, if it is not the number that the user gave.
            waiting: arithmetic of the rows that wait.
        """
        room = capacity - unsampleable_rows
        if self.min_size > room:
            raise ConfigError(
                f"min_size is {self.min_size}, but {capacity} rows of capacity"
                f"{why and f' ({why})'} - "
                f"{unsampleable_rows} rows that still wait for successors"
                f"{waiting and f' ({waiting})'} = {room}: sampling would never start; lower "
                "min_size or one of these, or raise the capacity"
            )

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
        """Adapts to larger chunks or requests than announced: widens an automatic band.

        Raises:
            ConfigError: the tolerance was given and is too small for them.
        """
        if chunk_rows > self._chunk_rows or request_rows > self._request_rows:
            self._chunk_rows = max(chunk_rows, self._chunk_rows)
            self._request_rows = max(request_rows, self._request_rows)
            self._choose_tolerance()

    def can_insert(self, rows: int = 0) -> bool:
        """True if an insert that makes ``rows`` rows sampleable (0: the largest) is allowed."""
        # Below min_size no request is answered: an insert would wait for its samples for ever.
        if not self.samples_per_insert or self.size < self.min_size:
            return True
        added = self.samples_per_insert * (rows or self._chunk_rows)
        return self._balance + added <= self._due_at_start + self.tolerance

    def can_sample(self, rows: int = 0) -> bool:
        """True if a request for ``rows`` rows (0: the largest) may be answered now."""
        if self.size < self.min_size:
            return False
        if not self.samples_per_insert:
            return True
        taken = rows or self._request_rows
        return self._balance - taken >= self._due_at_start - self.tolerance

    def insert(self, rows: int) -> None:
        """Counts rows that have become sampleable."""
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
        self.sampled += rows
        self._balance -= rows

    def evict(self, rows: int) -> None:
        """Counts sampleable rows that were evicted."""
        self.size -= rows

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
