"""Selection of rows for a sample: each sampleable row in proportion to its priority."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import SurrealError
from surreal_like.data.timestep import Flags
from surreal_like.replay.kept_memory import Zeros, new_zeros
from surreal_like.replay.select.selector import RingSelector, Sample
from surreal_like.replay.storage import Rows

Slots = npt.NDArray[np.int64]
Masses = npt.NDArray[np.float64]

_FANOUT = 16
_WIDEST_LINE = 8192


class SumTree:
    """A tree of wide nodes: slots, sums of 16 slots, sums of those, up to one line of sums.

    A binary tree does fewer additions but more calls, and with vectors of hundreds of draws the
    calls dominate the cost. The line at the top is added up once after each change, for all draws
    that follow. Sums are always recomputed from the level below, so no rounding error grows.

    Args:
        slots: number of slots.
        zeros: creates the array of their masses.
    """

    def __init__(self, slots: int, zeros: Zeros = new_zeros) -> None:
        widths = [-(-slots // _FANOUT)]
        while widths[-1] > _WIDEST_LINE:
            widths.append(-(-widths[-1] // _FANOUT))
        # Each level as nodes [width, 16]; its sums are the entries of the level above.
        self._levels = [zeros("masses", (widths[0], _FANOUT), np.float64)]
        self._levels += [np.zeros((width, _FANOUT)) for width in widths[1:]]
        self._least = [np.full((width, _FANOUT), np.inf) for width in widths]
        self._slots = self._levels[0].reshape(-1)
        self._sums = np.zeros(widths[-1])
        self._least_sums = np.full(widths[-1], np.inf)
        self._line: Masses | None = None

    @property
    def total(self) -> float:
        """Sum of all masses."""
        return float(self._add_up()[-1])

    @property
    def least(self) -> float:
        """The smallest mass above 0, infinity where all are 0."""
        return float(self._least_sums.min())

    def get(self, slots: Slots) -> Masses:
        """Masses of slots, in their shape."""
        return self._slots[slots]

    def put(self, slots: Slots, masses: Masses | float) -> None:
        """Sets masses, 0 or above; for a slot given twice the last mass counts."""
        self._slots[slots] = masses
        least = self._least[0].reshape(-1)
        least[slots] = np.where(self._slots[slots] > 0.0, self._slots[slots], np.inf)
        self._renew(slots // _FANOUT)

    def fill(self, span: slice, masses: Masses | float) -> int:
        """Sets the masses of a range of slots; returns how many were above 0 before."""
        before = int(np.count_nonzero(self._slots[span]))
        self._slots[span] = masses
        new = self._slots[span]
        self._least[0].reshape(-1)[span] = np.where(new > 0.0, new, np.inf)
        self._renew(slice(span.start // _FANOUT, -(-span.stop // _FANOUT)))
        return before

    def _renew(self, nodes: Slots | slice) -> None:
        """Recomputes the sums of nodes of the lowest level, and of all above them."""
        above = [*(level.reshape(-1) for level in self._levels[1:]), self._sums]
        least_above = [*(level.reshape(-1) for level in self._least[1:]), self._least_sums]
        for depth, level in enumerate(self._levels):
            above[depth][nodes] = level[nodes].sum(axis=1)
            least_above[depth][nodes] = self._least[depth][nodes].min(axis=1)
            if isinstance(nodes, slice):
                nodes = slice(nodes.start // _FANOUT, -(-nodes.stop // _FANOUT))
            else:
                nodes = nodes // _FANOUT
        self._line = None

    def find(self, points: Masses) -> Slots:
        """Returns the slots at points of the line of masses, ``[B]`` each in ``[0, total)``.

        A slot of mass 0 is never found, not even where a sum was rounded.
        """
        line = self._add_up()
        nodes = np.minimum(np.searchsorted(line, points, side="right"), self._last)
        rest = points - (line[nodes] - self._sums[nodes])
        for level in reversed(self._levels):
            masses = level[nodes]
            passed = np.add.accumulate(masses, axis=1)
            places = np.count_nonzero(passed <= rest[:, None], axis=1)
            rows = np.arange(len(places))
            if places.max(initial=0) == _FANOUT or not masses[rows, places].all():
                places = _nearest(masses, places)
            rest -= passed[rows, places] - masses[rows, places]
            nodes = nodes * _FANOUT + places
        return nodes

    def _add_up(self) -> Masses:
        if self._line is None:
            self._line = np.add.accumulate(self._sums)
            positive = self._sums.nonzero()[0]
            self._last = int(positive[-1]) if len(positive) else 0
        return self._line


def _nearest(masses: Masses, places: Slots) -> Slots:
    """The place itself where it has mass, else the last one before it that has, else the first."""
    has = masses > 0.0
    before = has & (np.arange(masses.shape[1]) <= places[:, None])
    last = masses.shape[1] - 1 - before[:, ::-1].argmax(axis=1)
    nearest: Slots = np.where(before.any(axis=1), last, has.argmax(axis=1))
    return nearest


Priorities = npt.NDArray[np.float32]


class PrioritySelector(RingSelector):
    """Draws sampleable rows in proportion to ``priority ** alpha``, with replacement.

    New rows have the highest priority that any row has had, so each is likely to be drawn soon. A
    row's weight, in (0, 1], is ``(N P) ** -beta`` over the largest weight that any row has, which
    corrects for rows that are drawn too often (Schaul and others 2016, "Prioritized experience
    replay", section 3.4); draws are independent of each other, where the paper draws one from each
    of B equal parts of the mass.

    Args:
        capacity: bound on the rows that exist at once.
        alpha: 0 is uniform, 1 fully in proportion.
        beta: present strength of the correction by weights, 0 for none, 1 for full.
        epsilon: least priority, so that every row can be drawn.
        least_elsewhere: the smallest mass of any row of the selectors in other shards; all draw
            from one population.
        first_priorities: returns priorities of new rows, ``[B]``; None: the highest one so far.
        seed: seeds the generator.

    Attributes:
        ignored: number of priorities received for rows that are not sampleable.
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float,
        beta: Callable[[], float],
        epsilon: float,
        least_elsewhere: Callable[[], float] = lambda: math.inf,
        first_priorities: Callable[[Rows], Priorities] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(capacity, seed=seed)
        self.ignored = 0
        self._tree = SumTree(self._slots)
        self._alpha, self._epsilon = alpha, epsilon
        self._beta, self._least_elsewhere = beta, least_elsewhere
        self._first_priorities = first_priorities
        self._highest = 1.0

    @property
    def mass(self) -> float:
        """Sum of all ``priority ** alpha``."""
        return self._tree.total

    @property
    def least(self) -> float:
        """The smallest ``priority ** alpha`` of a sampleable row, infinity if there is none."""
        return self._tree.least

    def keep_in(self, zeros: Zeros) -> None:
        self._tree = SumTree(self._slots, zeros)

    def is_ready(self, numbers: Rows) -> Flags:
        ready: Flags = self._tree.get(numbers & (self._slots - 1)) > 0.0
        return ready

    def mark(self, first: int, ready: Flags) -> None:
        self._mark(first, ready.reshape(-1) * self._highest**self._alpha)

    def add(self, numbers: Rows, ready: Flags, earlier: Rows) -> None:
        if self._first_priorities is None:
            super().add(numbers, ready, earlier)
            return
        masses = self._masses(self._first_priorities(np.concatenate((numbers[ready], earlier))))
        entries, new = np.zeros(ready.size), len(masses) - len(earlier)
        entries[ready.reshape(-1)] = masses[:new]
        self._mark(int(numbers[0, 0]), entries)
        self._tree.put(earlier & (self._slots - 1), masses[new:])
        self._size += len(earlier)

    def _fill(self, slots: slice, entries: Masses) -> None:
        self._tree.fill(slots, entries)

    def _put(self, slots: Rows, ready: bool) -> None:
        self._tree.put(slots, ready * self._highest**self._alpha)

    def _clear(self, slots: slice) -> int:
        return self._tree.fill(slots, 0.0)

    def _draw(self, batch_size: int) -> Sample:
        slots = self._tree.find(self._generator.random(batch_size) * self._tree.total)
        base = self._oldest - (self._oldest & (self._slots - 1))
        numbers = base + slots
        numbers[numbers < self._oldest] += self._slots
        # (N p / total) ** -beta over the same of the least p: N and total cancel out.
        least = min(self._tree.least, self._least_elsewhere())
        weights = (self._tree.get(slots) / least) ** -self._beta()
        return Sample.of(numbers, weights.astype(np.float32))

    def update(self, numbers: Rows, priorities: Priorities) -> None:
        """Sets priorities, 0 or above, of rows; counts and ignores those of rows that are gone.

        Raises:
            SurrealError: a priority is negative or not a number; nothing is changed then.
        """
        if not (priorities >= 0.0).all() or not np.isfinite(priorities).all():
            raise SurrealError("a priority is negative, infinite or not a number")
        here = (numbers >= self._oldest) & (numbers < self._next_number)
        here[here] = self.is_ready(numbers[here])
        self.ignored += len(numbers) - int(np.count_nonzero(here))
        if len(masses := self._masses(priorities[here])):
            self._tree.put(numbers[here] & (self._slots - 1), masses)

    def _masses(self, priorities: Priorities) -> Masses:
        raised = np.maximum(priorities.astype(np.float64), self._epsilon)
        self._highest = max(self._highest, float(raised.max(initial=0.0)))
        masses: Masses = raised**self._alpha
        return masses

    def statistics(self) -> dict[str, float]:
        """Total and least mass, beta, and the number of ignored (late) priorities."""
        return {
            "priority_mass": self.mass,
            "priority_least": self.least,
            "priority_beta": self._beta(),
            "priorities_ignored": self.ignored,
        }

    def counts(self) -> dict[str, Any]:
        return {"highest": self._highest}

    def recall(self, counts: Mapping[str, Any], numbers: Rows) -> dict[str, Any]:
        return {**super().recall(counts, numbers), "masses": self._masses_of(numbers)}

    def _masses_of(self, numbers: Rows) -> Masses:
        return self._tree.get(numbers & (self._slots - 1))

    def state(self) -> dict[str, Any]:
        """Masses of all rows, the oldest first, and plain values."""
        numbers = np.arange(self._oldest, self._next_number)
        return {**super().state(), **self.counts(), "masses": self._masses_of(numbers)}

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        """Restores what :meth:`state` gave, with flags of all rows from ``oldest`` on.

        Rows that another view makes sampleable get the highest priority.
        """
        self._highest = state["highest"]
        slots = np.arange(oldest, oldest + len(ready)) & (self._slots - 1)
        # With a smaller capacity than before only the newest rows are here.
        masses = np.asarray(state["masses"], np.float64)
        masses = masses[len(masses) - len(ready) :]
        masses = np.where(masses > 0.0, masses, self._highest**self._alpha) * ready
        # In one store, so that a process that is killed here leaves each mass as it was or will be.
        every = np.zeros(self._slots)
        every[slots] = masses
        self._tree.fill(slice(0, self._slots), every)
        self._size, self._oldest = 0, oldest
        self._mark(oldest, masses)
        self._generator.bit_generator.state = state["generator"]
