"""Sum tree: finds a slot by a point on the cumulative line of all masses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
    """

    def __init__(self, slots: int) -> None:
        widths = [-(-slots // _FANOUT)]
        while widths[-1] > _WIDEST_LINE:
            widths.append(-(-widths[-1] // _FANOUT))
        # Each level as nodes [width, 16]; its sums are the entries of the level above.
        self._levels = [np.zeros((width, _FANOUT)) for width in widths]
        self._least = [np.full((width, _FANOUT), np.inf) for width in widths]
        self._slots = self._levels[0].reshape(-1)
        self._sums = np.zeros(widths[-1])
        self._least_sums = np.full(widths[-1], np.inf)
        self._line: Masses | None = None

    @property
    def total(self) -> float:
        """Sum of all masses."""
        return float(self._added_up()[-1])

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
        line = self._added_up()
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

    def _added_up(self) -> Masses:
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
