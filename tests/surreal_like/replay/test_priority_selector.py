"""Draws in proportion to priorities, of sampleable rows only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import SurrealError
from surreal_like.replay.select.priority import PrioritySelector

# 0.999 quantile of chi-square with so many degrees of freedom (tables of the distribution).
CHI_SQUARE = {9: 27.88, 49: 85.35}


def make(
    capacity: int = 64, *, alpha: float = 1.0, beta: float = 1.0, seed: int = 1
) -> PrioritySelector:
    return PrioritySelector(capacity, alpha=alpha, beta=lambda: beta, epsilon=1e-3, seed=seed)


def chi_square(selector: PrioritySelector, expected: dict[int, float]) -> float:
    draws = 40_000
    numbers = np.concatenate([selector.sample(100).numbers for _ in range(draws // 100)])
    counts = np.array([np.count_nonzero(numbers == number) for number in expected])
    assert counts.sum() == draws  # nothing else was drawn
    shares = np.array(list(expected.values()))
    wanted = draws * shares / shares.sum()
    return float(((counts - wanted) ** 2 / wanted).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_draws_follow_the_priorities(alpha: float) -> None:
    selector = make(alpha=alpha)
    selector.mark(0, np.ones(50, np.bool_))
    priorities = np.linspace(0.1, 5, 50).astype(np.float32)
    selector.update(np.arange(50), priorities)
    expected = {n: float(p) ** alpha for n, p in enumerate(priorities)}
    assert chi_square(selector, expected) < CHI_SQUARE[49]
    if alpha:
        assert chi_square(selector, dict.fromkeys(range(50), 1.0)) > CHI_SQUARE[49]


def test_the_wrapped_ring_is_drawn_alike() -> None:
    selector = make(16)
    for first in range(0, 70, 7):
        selector.evict(first + 7 - 16)
        selector.mark(first, np.ones(7, np.bool_))
    newest = np.arange(60, 70)
    selector.evict(60)
    selector.update(newest, np.arange(1, 11).astype(np.float32))
    assert len(selector) == 10
    assert chi_square(selector, {int(n): float(n - 59) for n in newest}) < CHI_SQUARE[9]


def test_rows_that_are_not_sampleable_any_more_have_no_mass() -> None:
    selector = make()
    selector.mark(0, np.array([True, True, False, True]))
    selector.update(np.array([0, 1, 3]), np.array([2, 3, 4], np.float32))
    assert selector.unmark(np.array([1, 2])) == 1
    assert len(selector) == 2
    assert selector.mass == pytest.approx(6)
    assert set(selector.sample(100).numbers.tolist()) == {0, 3}
    selector.update(np.array([1]), np.array([9.0], np.float32))  # a priority that comes late
    assert selector.ignored == 1
    assert selector.mass == pytest.approx(6)
    assert selector.unmark(np.array([], np.int64)) == 0


def test_new_rows_have_the_highest_priority_so_far() -> None:
    selector = make()
    selector.mark(0, np.ones(2, np.bool_))
    selector.update(np.array([0, 1]), np.array([9.0, 1.0], np.float32))
    selector.mark(2, np.array([True, False]))
    selector.mark_earlier(np.array([3]))
    assert selector.mass == pytest.approx(9 + 1 + 9 + 9)


def test_weights_by_hand() -> None:
    selector = make(alpha=0.5, beta=0.5)
    selector.mark(0, np.ones(3, np.bool_))
    selector.update(np.arange(3), np.array([1.0, 4.0, 16.0], np.float32))
    sample = selector.sample(200)
    # Masses 1, 2 and 4: P = 1/7, 2/7, 4/7; (3 P) ** -0.5 over that of the first, the largest.
    by_hand = np.array([1.0, 0.5**0.5, 0.5])
    assert set(sample.numbers.tolist()) == {0, 1, 2}
    assert np.allclose(sample.columns["weights"], by_hand[sample.numbers])
    assert sample.columns["weights"].dtype == np.float32


def test_priorities_of_rows_that_are_gone_are_counted() -> None:
    selector = make(8)
    selector.mark(0, np.array([True, True, False, True]))
    selector.evict(1)
    selector.update(np.array([0, 1, 2, 99]), np.array([5, 6, 7, 8], np.float32))
    assert selector.ignored == 3
    assert selector.mass == pytest.approx(6 + 1)


def test_no_priority_is_too_small_to_be_drawn() -> None:
    selector = make()
    selector.mark(0, np.ones(2, np.bool_))
    selector.update(np.arange(2), np.zeros(2, np.float32))
    assert selector.is_ready(np.arange(2)).all()
    assert chi_square(selector, {0: 1.0, 1: 1.0}) < CHI_SQUARE[9]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_priorities_change_nothing(bad: float) -> None:
    selector = make()
    selector.mark(0, np.ones(2, np.bool_))
    with pytest.raises(SurrealError, match="negative, infinite or not a number"):
        selector.update(np.arange(2), np.array([3.0, bad], np.float32))
    assert selector.mass == 2.0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("insert"), st.lists(st.booleans(), min_size=1, max_size=7)),
            st.tuples(st.just("evict"), st.integers(1, 5)),
            st.tuples(
                st.just("update"),
                st.lists(st.tuples(st.integers(0, 99), st.floats(0, 9, width=32)), max_size=6),
            ),
        ),
        max_size=25,
    )
)
def test_masses_are_those_of_a_dictionary(changes: list[tuple[str, object]]) -> None:
    """Random inserts, evictions and updates; a restored selector goes on alike."""
    capacity, selector = 16, make(16)
    twin: dict[int, float] = {}
    oldest = following = 0
    highest = 1.0
    for kind, what in changes:
        if kind == "insert":
            ready: list[bool] = what  # type: ignore[assignment]
            oldest = max(oldest, following + len(ready) - capacity)
            selector.evict(oldest)
            selector.mark(following, np.array(ready))
            twin |= {following + i: highest for i, flag in enumerate(ready) if flag}
            following += len(ready)
        elif kind == "evict":
            oldest = min(following, oldest + int(what))  # type: ignore[call-overload]
            selector.evict(oldest)
        else:
            pairs: list[tuple[int, float]] = what  # type: ignore[assignment]
            selector.update(
                np.array([n for n, _ in pairs], np.int64),
                np.array([p for _, p in pairs], np.float32),
            )
            for number, priority in pairs:
                if number in twin and number >= oldest:
                    highest = max(highest, priority)
                    twin[number] = max(priority, 1e-3)
        twin = {number: mass for number, mass in twin.items() if number >= oldest}
        assert len(selector) == len(twin)
        assert selector.mass == pytest.approx(sum(twin.values()))
    flags = np.array([number in twin for number in range(oldest, following)], np.bool_)
    again = make(16, seed=5)
    again.restore(selector.state(), oldest, flags)
    assert len(again) == len(twin)
    if twin:
        assert again.sample(20).numbers.tolist() == selector.sample(20).numbers.tolist()
