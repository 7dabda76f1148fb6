"""Draws by the age of the policy: exact probabilities, over eviction and restore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import SurrealError
from surreal_like.replay.select.age import AgeRule, AgeSelector, VersionRuns
from tests.examples import examples

# 0.999 quantile of chi-square with so many degrees of freedom (tables of the distribution).
CHI_SQUARE = {4: 18.47, 9: 27.88, 19: 43.82, 24: 51.18, 49: 85.35}


class Rows:
    """Rows with versions, as a replay has them, and the probabilities by the definition."""

    def __init__(self, capacity: int, rule: AgeRule, *, seed: int = 1) -> None:
        self.rule = rule
        self.newest = 0
        self.oldest = 0
        self.versions: list[int] = []
        self.ready: list[bool] = []
        self.selector = AgeSelector(
            capacity, rule, versions=self._of, newest_version=lambda: self.newest, seed=seed
        )

    def _of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.array(self.versions, np.int64)[numbers]

    def insert(self, versions: Sequence[int], ready: Sequence[bool] | None = None) -> None:
        flags = [True] * len(versions) if ready is None else list(ready)
        first = len(self.versions)
        self.versions += versions
        self.ready += flags
        self.selector.mark(first, np.array(flags, np.bool_))

    def complete(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.ready[number] = True
        self.selector.mark_earlier(np.array(numbers, np.int64))

    def evict(self, oldest: int) -> int:
        self.oldest = max(self.oldest, min(oldest, len(self.versions)))
        return self.selector.evict(oldest)

    def shares(self) -> dict[int, float]:
        """Row -> its weight, without any run or sum: the definition."""
        shares = {}
        for number in range(self.oldest, len(self.versions)):
            age = max(0, self.newest - self.versions[number])
            too_old = self.rule.max_versions and age > self.rule.max_versions
            if self.ready[number] and not too_old:
                half_life = self.rule.half_life_versions
                shares[number] = 0.5 ** (age / half_life) if half_life else 1.0
        return shares

    def chi_square(self, *, batch: int, draws: int = 40_000) -> float:
        batches = [self.selector.sample(batch).numbers for _ in range(draws // batch)]
        numbers, shares = np.concatenate(batches), self.shares()
        counts = np.array([np.count_nonzero(numbers == number) for number in shares])
        assert counts.sum() == len(numbers)  # nothing else was drawn
        weights = np.array(list(shares.values()))
        wanted = len(numbers) * weights / weights.sum()
        return float(((counts - wanted) ** 2 / wanted).sum())


@pytest.mark.parametrize("batch", [4, 1000], ids=["by runs", "listed"])
@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        (AgeRule(half_life_versions=3.0), 50),
        (AgeRule(max_versions=4), 25),
        (AgeRule(max_versions=3, half_life_versions=1.5), 20),
    ],
)
def test_probabilities_are_exact(rule: AgeRule, rows: int, batch: int) -> None:
    here = Rows(128, rule)
    for version in range(10):  # every second row of ten is sampleable, runs differ in length
        here.insert([version] * 10, [row % 2 == version % 2 for row in range(10)])
    here.newest = 9
    assert here.selector.drawable == len(here.shares()) == rows
    assert here.chi_square(batch=batch) < CHI_SQUARE[rows - 1]


def test_chi_square_sees_a_half_life_that_is_wrong() -> None:
    here = Rows(64, AgeRule(half_life_versions=3.0))
    for version in range(5):
        here.insert([version] * 4)
    here.newest = 4
    here.rule = AgeRule(half_life_versions=3.6)
    assert here.chi_square(batch=100) > CHI_SQUARE[19]


def test_versions_that_come_in_any_order_wrap_round_the_ring() -> None:
    here = Rows(16, AgeRule(half_life_versions=2.0))
    for first in range(0, 70, 7):
        here.evict(first + 7 - 10)
        here.insert([(first + row * 5) % 4 + first // 10 for row in range(7)])
    here.newest = 9
    assert len(here.selector) == 10
    assert here.chi_square(batch=10) < CHI_SQUARE[9]


def test_rows_become_sampleable_later() -> None:
    here = Rows(64, AgeRule(half_life_versions=1.0))
    here.insert([1, 1, 1, 2, 2, 2], [True, False, True, True, False, False])
    here.complete([1, 4])
    assert len(here.selector) == 5
    here.newest = 3
    assert here.chi_square(batch=10) < CHI_SQUARE[4]


def test_rows_are_not_sampleable_any_more() -> None:
    here = Rows(64, AgeRule(half_life_versions=1.0))
    here.insert([1, 1, 1, 2, 2, 2, 3, 3], [True, False, True, True, True, True, True, True])
    assert here.selector.unmark(np.array([1, 2, 5], np.int64)) == 2
    for number in (1, 2, 5):
        here.ready[number] = False
    assert len(here.selector) == here.selector.drawable == 5
    here.newest = 3
    assert here.chi_square(batch=10) < CHI_SQUARE[4]
    assert here.evict(3) == 1  # of the first run only row 0 was left
    assert set(here.selector.sample(200).numbers.tolist()) == {3, 4, 6, 7}


def test_only_too_old_rows_are_no_rows_to_draw() -> None:
    here = Rows(64, AgeRule(max_versions=2))
    here.insert([5] * 8)
    here.newest = 7
    assert here.selector.drawable == 8
    here.newest = 8
    assert (here.selector.drawable, len(here.selector)) == (0, 8)
    with pytest.raises(SurrealError, match=r"no row is young enough .* newest version is 8"):
        here.selector.sample(1)


def test_a_row_of_an_unknown_version_is_new() -> None:
    here = Rows(64, AgeRule(max_versions=1, half_life_versions=1.0))
    here.insert([0, 7])
    assert here.selector.drawable == 2
    here.newest = 1
    assert set(here.selector.sample(100).numbers.tolist()) == {0, 1}


def test_ages_of_any_size_are_weighed() -> None:
    here = Rows(64, AgeRule(half_life_versions=1.0))
    here.insert([0, 1, 1_000_000])
    here.newest = 10_000_000
    assert set(here.selector.sample(100).numbers.tolist()) == {2}
    below = Rows(64, AgeRule(half_life_versions=1.0))
    below.insert([0, 1, 1_000_000], [True, True, False])
    below.newest = 10_000_000
    assert set(below.selector.sample(100).numbers.tolist()) == {0, 1}


def test_the_last_step_is_never_overstepped() -> None:
    class Highest:
        def random(self, size: int) -> npt.NDArray[np.float64]:
            return np.full(size, np.nextafter(1.0, 0.0))

    here = Rows(64, AgeRule(max_versions=1))
    here.insert([3, 3, 3, 0, 0])  # the run at the end has no weight
    here.newest = 3
    here.selector._generator = Highest()  # type: ignore[assignment]
    assert here.selector.sample(1).numbers.tolist() == [2]


@settings(max_examples=examples(80))
@given(st.data())
def test_counts_and_rows_equal_those_of_the_definition(data: st.DataObject) -> None:
    """Random versions, inserts, completions and evictions; a restored selector goes on alike."""
    capacity = data.draw(st.integers(4, 40))
    rule = AgeRule(data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0.0, 0.5, 4.0])))
    here = Rows(capacity, rule)
    for _ in range(data.draw(st.integers(1, 15))):
        flags = data.draw(st.lists(st.booleans(), min_size=1, max_size=min(capacity, 7)))
        versions = data.draw(
            st.lists(st.integers(0, 6), min_size=len(flags), max_size=len(flags)).map(sorted)
        )
        before = set(here.shares())
        oldest = max(here.oldest, len(here.versions) + len(flags) - capacity)
        oldest += data.draw(st.integers(0, 4))
        sampleable = [n for n in range(here.oldest, len(here.versions)) if here.ready[n]]
        assert here.evict(oldest) == sum(n < oldest for n in sampleable)
        assert set(here.shares()) == {n for n in before if n >= oldest}
        here.insert(versions, flags)
        late = [n for n in range(here.oldest, len(here.versions)) if not here.ready[n]]
        here.complete(late[:: data.draw(st.integers(1, 4))])
        here.newest = data.draw(st.integers(0, 8))
        check(here)
    state = here.selector.state()
    again = Rows(capacity, rule, seed=5)
    again.insert([9, 9, 9])  # what it had is forgotten
    again.versions, again.ready, again.newest = here.versions, here.ready, here.newest
    again.oldest = here.oldest
    again.selector.restore(state, here.oldest, np.array(here.ready[here.oldest :], np.bool_))
    check(again)
    if here.shares():
        assert again.selector.sample(9).numbers.tolist() == drawn_from(here, state)


def check(rows: Rows) -> None:
    shares = rows.shares()
    assert rows.selector.drawable == len(shares)
    assert rows.selector.mass == pytest.approx(sum(shares.values()))
    assert len(rows.selector) == sum(rows.ready[rows.oldest :])
    if shares:
        sample = rows.selector.sample(30)
        assert set(sample.numbers.tolist()) <= set(shares)
        assert sample.columns["weights"].tolist() == [1.0] * 30


def drawn_from(rows: Rows, state: dict[str, Any]) -> list[int]:
    """What the first selector draws from that state on, and the restored one has drawn before."""
    rows.selector._generator.bit_generator.state = state["generator"]
    check(rows)
    numbers: list[int] = rows.selector.sample(9).numbers.tolist()
    return numbers


def test_there_are_as_many_runs_as_changes_of_version() -> None:
    runs = VersionRuns()
    for first in range(0, 10_000, 100):
        runs.append(first, np.full(100, first // 500), np.ones(100, np.bool_))
    assert len(runs) == 20
    assert runs.spans.tolist() == [500] * 20
    runs.cut(1250, np.arange(1250))
    assert runs.starts[:2].tolist() == [1250, 1500]
    assert runs.ready[:2].tolist() == [250, 500]
    runs.cut(10_000, np.arange(1250, 10_000))
    assert not len(runs)
