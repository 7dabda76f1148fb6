"""The tree of masses against a plain array of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.replay.select import priority as sum_tree
from surreal_like.replay.select.priority import SumTree

MASSES = st.sampled_from([0.0, 0.0, 1e-9, 0.25, 1.0, 3.0, 1e6])
PUTS = st.lists(st.tuples(st.integers(0, 599), MASSES), max_size=20)
FILLS = st.tuples(st.integers(0, 599), st.integers(0, 80), MASSES)


def found_by_hand(masses: np.ndarray[tuple[int], np.dtype[np.float64]], point: float) -> int:
    passed = 0.0
    for slot in masses.nonzero()[0]:
        passed += masses[slot]
        if point < passed:
            return int(slot)
    return int(masses.nonzero()[0][-1])


@pytest.mark.parametrize("widest", [8192, 4])
@given(
    changes=st.lists(st.tuples(PUTS, FILLS), max_size=8),
    shares=st.lists(st.floats(0, 1, exclude_max=True), max_size=9),
)
def test_the_tree_is_its_twin(
    widest: int,
    changes: list[tuple[list[tuple[int, float]], tuple[int, int, float]]],
    shares: list[float],
) -> None:
    before, sum_tree._WIDEST_LINE = sum_tree._WIDEST_LINE, widest
    try:
        tree = SumTree(600)
    finally:
        sum_tree._WIDEST_LINE = before
    twin = np.zeros(600)
    for puts, (first, length, mass) in changes:
        span = slice(first, min(600, first + length))
        assert tree.fill(span, mass) == np.count_nonzero(twin[span])
        twin[span] = mass
        tree.put(np.array([slot for slot, _ in puts], np.int64), np.array([m for _, m in puts]))
        for slot, value in puts:
            twin[slot] = value
        assert tree.total == pytest.approx(twin.sum(), rel=1e-12)
    assert tree.total == pytest.approx(twin.sum(), rel=1e-12)
    assert tree.least == min(twin[twin > 0], default=np.inf)
    assert (tree.get(np.arange(600)) == twin).all()
    if not twin.any():
        return
    points = np.array(shares) * tree.total
    found = tree.find(points)
    assert (twin[found] > 0).all()
    added = np.cumsum(twin)
    for point, slot in zip(points, found, strict=True):
        # Exactly the slot of the plain array, but where the point lies on a border.
        near = 1e-9 * tree.total
        assert slot == found_by_hand(twin, point) or (
            abs(point - added[slot]) <= near or abs(point - (added[slot] - twin[slot])) <= near
        )


def test_a_tree_of_millions_of_slots_has_a_short_line() -> None:
    tree = SumTree(3_000_000)
    assert len(tree._sums) <= 8192
    tree.fill(slice(0, 3_000_000), 1.0)
    assert tree.total == 3_000_000
    assert tree.find(np.array([0.0, 12.5, 1_500_000.5, 2_999_999.5])).tolist() == [
        0,
        12,
        1_500_000,
        2_999_999,
    ]


def test_slots_without_mass_are_never_found() -> None:
    tree = SumTree(1000)
    tree.put(np.array([17, 900]), np.array([1e-300, 1.0]))
    points = np.array([0.0, np.nextafter(tree.total, 0), tree.total])
    assert set(tree.find(points).tolist()) <= {17, 900}
