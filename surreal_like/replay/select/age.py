"""Selection of rows by age: rows acted with newer parameters more often, or only those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import SurrealError
from surreal_like.data.timestep import Flags
from surreal_like.replay.select.selector import Sample, UniformSelector
from surreal_like.replay.storage import Rows, spans

Counts = npt.NDArray[np.int64]

_LEAST_ROOM = 64
_START, _VERSION, _READY = range(3)


class VersionRuns:
    """Cuts rows 0, 1, 2, ... into runs of one version each, and counts the ready rows of each.

    Rows come in the order of their numbers, and those of a chunk mostly have one version, so there
    are about as many runs as chunks.
    """

    def __init__(self) -> None:
        self._table: Counts = np.zeros((3, _LEAST_ROOM), np.int64)
        self._begin = self._end = 0
        self._next_number = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def starts(self) -> Counts:
        """Number of the first row of each run, rising."""
        return self._table[_START, self._begin : self._end]

    @property
    def versions(self) -> Counts:
        """Version of each run."""
        return self._table[_VERSION, self._begin : self._end]

    @property
    def ready(self) -> Counts:
        """Ready rows of each run."""
        return self._table[_READY, self._begin : self._end]

    @property
    def spans(self) -> Counts:
        """Rows of each run, ready or not."""
        return np.diff(self.starts, append=self._next_number)

    def append(self, first: int, versions: Counts, ready: npt.NDArray[np.bool_]) -> None:
        """Adds the rows from ``first`` on, which follow the last ones; both arrays ``[rows]``."""
        if not len(versions):
            return
        changes = np.flatnonzero(versions[1:] != versions[:-1]) + 1
        begins = np.concatenate([[0], changes])
        counts = np.add.reduceat(ready, begins, dtype=np.int64)
        self._next_number = first + len(versions)
        if len(self) and self.versions[-1] == versions[0]:
            self.ready[-1] += counts[0]
            begins, counts = begins[1:], counts[1:]
        self._make_room(len(begins))
        new = slice(self._end, self._end + len(begins))
        self._table[:, new] = (first + begins, versions[begins], counts)
        self._end = new.stop

    def _make_room(self, runs: int) -> None:
        if self._end + runs <= self._table.shape[1]:
            return
        kept = self._table[:, self._begin : self._end]
        table = np.zeros((3, max(2 * (len(self) + runs), _LEAST_ROOM)), np.int64)
        table[:, : len(self)] = kept
        self._table, self._begin, self._end = table, 0, len(self)

    def count(self, numbers: Counts, by: int = 1) -> None:
        """Counts existing rows as ready; with ``by`` -1, as not ready any more."""
        of = np.searchsorted(self.starts, numbers, side="right") - 1
        np.add.at(self.ready, of, by)

    def cut(self, oldest: int, gone: Counts) -> None:
        """Forgets the rows before ``oldest``.

        Args:
            oldest: the first row that stays.
            gone: numbers of the ready rows among those that go, rising.
        """
        starts = self.starts
        if not len(starts) or oldest <= starts[0]:
            return
        if oldest >= self._next_number:
            self._begin = self._end
            return
        left = int(np.searchsorted(starts, oldest, side="right")) - 1
        # Some rows of the run in which the cut lies stay.
        self.ready[left] -= len(gone) - int(np.searchsorted(gone, starts[left]))
        starts[left] = oldest
        self._begin += left


Versions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AgeRule:
    """Draws experience in proportion to ``0.5 ** (age / half_life_versions)``, or not at all.

    Its age is the number of versions by which the parameters that acted are behind the newest.

    Args:
        max_versions: highest age that is drawn, 0 for no bound.
        half_life_versions: age at which the weight has fallen to a half, 0 for equal weights.
    """

    max_versions: int = 0
    half_life_versions: float = 0.0

    @classmethod
    def of(cls, replay_config: Mapping[str, Any]) -> AgeRule:
        """Returns the rule of ``learner_config.replay.age``."""
        return cls(**replay_config["age"])

    @property
    def matters(self) -> bool:
        """False if all weights are equal, whatever the age."""
        return self.max_versions > 0 or self.half_life_versions > 0.0

    def log_weights(self, versions: Versions, newest_version: int) -> npt.NDArray[np.float64]:
        """Natural logarithms of the weights, ``-inf`` for rows not drawn; shape of ``versions``.

        Versions above ``newest_version`` have age 0: the newest may not have been reported yet.
        """
        ages = np.maximum(newest_version - versions, 0)
        half_life = self.half_life_versions
        logs = ages * (-np.log(2.0) / half_life) if half_life else np.zeros(ages.shape)
        if self.max_versions:
            logs[ages > self.max_versions] = -np.inf
        return logs


class AgeSelector(UniformSelector):
    """Draws each sampleable row with a probability in proportion to its weight by an AgeRule.

    A run of neighbouring rows of one version is drawn by its weight, then one of its rows, and both
    again where the row is not sampleable, which is exact; where that would take long the sampleable
    rows are listed. The work grows with the number of runs, not of rows. Rows that are too old are
    kept and counted, but not drawn. Weights in the sample are 1: the choice is not corrected for.

    Args:
        capacity: bound on the rows that exist at once.
        rule: weights by age.
        versions: versions ``[rows]`` of existing rows, by their numbers ``[rows]``.
        newest_version: the newest version that is known.
        seed: seeds the generator.
    """

    def __init__(
        self,
        capacity: int,
        rule: AgeRule,
        *,
        versions: Callable[[Rows], Versions],
        newest_version: Callable[[], int],
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed=seed)
        self._rule = rule
        self._versions = versions
        self._newest_version = newest_version
        self._runs = VersionRuns()

    @property
    def drawable(self) -> int:
        """Number of sampleable rows that are young enough."""
        if not self._rule.max_versions:
            return self._size
        oldest = self._newest_version() - self._rule.max_versions
        return int(self._runs.ready[self._runs.versions >= oldest].sum())

    @property
    def mass(self) -> float:
        """Sum of the weights of all rows; one acted with the newest version weighs 1."""
        return float((np.exp(self._log_weights()) * self._runs.ready).sum())

    def mark(self, first: int, ready: Flags) -> None:
        super().mark(first, ready)
        flags = ready.reshape(-1)
        if not len(flags):  # restored before the first chunk: there is no column of versions
            return
        self._runs.append(first, self._versions(np.arange(first, first + len(flags))), flags)

    def mark_earlier(self, numbers: Rows) -> None:
        super().mark_earlier(numbers)
        self._runs.count(numbers)

    def unmark(self, numbers: Rows) -> int:
        self._runs.count(numbers.compress(self.is_ready(numbers)), -1)
        return super().unmark(numbers)

    def evict(self, oldest: int) -> int:
        end = min(max(oldest, self._oldest), self._next_number)
        gone = [
            self._oldest + part.start + np.flatnonzero(self._bits[slots])
            for slots, part in spans(self._oldest, end - self._oldest, len(self._bits))
        ]
        self._runs.cut(end, np.concatenate(gone))
        return super().evict(oldest)

    def sample(self, batch_size: int) -> Sample:
        """Draws rows; all weights are 1.

        Raises:
            SurrealError: no row that is young enough is sampleable.
        """
        if not self.drawable:
            raise SurrealError(
                f"no row is young enough to be drawn (of {self._size}; the newest version is "
                f"{self._newest_version()}): ask can_sample() first"
            )
        return super().sample(batch_size)

    def _choose(self, batch_size: int) -> Rows:
        weights = self._weights()
        mass = weights * self._runs.spans
        accepted = float((weights * self._runs.ready).sum() / mass.sum())
        tries = int(1.1 * batch_size / accepted) + 8
        if tries > self._next_number - self._oldest:
            return self._choose_listed(weights, batch_size)
        ends = np.cumsum(mass)
        kept = self._try_runs(ends, tries)
        while len(kept) < batch_size:
            kept = np.concatenate([kept, self._try_runs(ends, tries)])
        return kept[:batch_size]

    def _weights(self) -> npt.NDArray[np.float64]:
        """Weight of a row of each run; the largest of a run that has a sampleable row is 1."""
        logs = self._log_weights()
        logs[self._runs.ready == 0] = -np.inf
        # Relative to the largest, so that weights do not underflow where all rows are old.
        weights: npt.NDArray[np.float64] = np.exp(logs - logs.max())
        return weights

    def _log_weights(self) -> npt.NDArray[np.float64]:
        return self._rule.log_weights(self._runs.versions, self._newest_version())

    def _try_runs(self, ends: npt.NDArray[np.float64], tries: int) -> Rows:
        of = self._draw_places(ends, tries)
        inside = (self._generator.random(tries) * self._runs.spans[of]).astype(np.int64)
        numbers = self._runs.starts[of] + inside
        return numbers.compress(self.is_ready(numbers))

    def _choose_listed(self, weights: npt.NDArray[np.float64], batch_size: int) -> Rows:
        numbers = self.list_rows()
        ends = np.cumsum(np.repeat(weights, self._runs.ready))
        return numbers[self._draw_places(ends, batch_size)]

    def _draw_places(self, ends: npt.NDArray[np.float64], draws: int) -> Rows:
        """Draws places, each with a probability in proportion to the step of ``ends`` there."""
        total = ends[-1]
        # A product that is rounded up to the total would lie behind the last step.
        masses = np.minimum(self._generator.random(draws) * total, np.nextafter(total, 0.0))
        places: Rows = np.searchsorted(ends, masses, side="right")
        return places

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        self._runs = VersionRuns()
        super().restore(state, oldest, ready)
