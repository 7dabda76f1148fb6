"""Groups that are handed out once, and drawn again: distinct, by their age, the newest only."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from session.errors import SurrealError
from surreal_like.replay.select.age import AgeRule, Versions
from surreal_like.replay.select.fifo import FIFOSelector
from surreal_like.replay.select.selector import Sample
from surreal_like.replay.storage import Rows
from surreal_like.replay.unrolls import UnrollPlan

CHI_SQUARE_5 = 20.52  # 0.999 quantile with 5 degrees of freedom
ROWS = 4  # of an unroll, of which the first two are the starts of its two streams


class Filled(FIFOSelector):
    """A selector of unrolls whose versions the test chooses."""

    def __init__(
        self,
        versions: list[int],
        *,
        replayed: tuple[int, int] = (0, 1),
        keep: int = 0,
        queue: int = 0,
        **options: Any,
    ) -> None:
        self.known, self.newest = versions, 0
        again, batch = replayed
        self.sizes = UnrollPlan(1, 2, batch, again, queue, keep, 0, drops_oldest=bool(queue))
        given: Any = {"versions": self._of, "newest_version": lambda: self.newest, **options}
        super().__init__(self.sizes, **given)
        for number in range(len(versions)):
            self.mark(ROWS * number, np.arange(ROWS) < 2)

    def _of(self, numbers: Rows) -> Versions:
        return np.array(self.known)[numbers // ROWS] + numbers % ROWS  # the second is newer


def numbers_of(sample: Sample) -> list[int]:
    assert (sample.numbers[1::2] == sample.numbers[::2] + 1).all()
    return [int(number) // ROWS for number in sample.numbers[::2]]


def test_each_is_handed_out_once_the_oldest_first() -> None:
    selector = Filled([0] * 4)
    assert (len(selector), selector.drawable, selector.mass) == (8, 8, 8.0)
    assert numbers_of(selector.sample(2)) == [0]
    sample = selector.sample(4)
    assert (numbers_of(sample), sample.fresh) == ([1, 2], 4)
    assert not sample.columns["replayed"].any()
    for wrong in (4, 1):
        with pytest.raises(SurrealError, match=f"{wrong} streams asked for, but there are 1 unr"):
            selector.sample(wrong)
    assert len(selector) == 2
    assert selector.list_rows().tolist() == [3 * ROWS, 3 * ROWS + 1]


def test_what_is_evicted_dropped_or_unmarked_is_not_handed_out() -> None:
    selector = Filled([4, 2, 4, 5, 4, 9], queue=4)
    assert (selector.drop_older(4), len(selector)) == (2, 10)
    assert selector.needed() == {3 * ROWS, 4 * ROWS, 5 * ROWS}  # two make room for another one
    assert (selector.evict(0), selector.evict(0), len(selector)) == (4, 0, 6)
    assert selector.unmark(np.array([4 * ROWS, 4 * ROWS + 1])) == 2
    assert selector.needed() == {3 * ROWS, 5 * ROWS}
    assert numbers_of(selector.sample(4)) == [3, 5]
    assert selector.needed() == set()


def test_the_newest_are_drawn_again_and_each_draw_is_distinct() -> None:
    selector = Filled([0] * 60, replayed=(3, 4), keep=4)
    assert selector.fresh(8) == 8  # nothing has been handed out
    selector.sample(8)
    selector.sample(2)
    assert (selector.replayable, selector.fresh(8)) == (8, 2)
    for number in range(5, 55):
        sample = selector.sample(8)
        fresh, *again = numbers_of(sample)
        assert fresh == number
        assert len(set(again)) == 3
        assert set(again) <= {number - 4, number - 3, number - 2, number - 1}
        assert sample.columns["replayed"].tolist() == [False] * 2 + [True] * 6
    assert selector.replayed == 50 * 6
    selector.sizes.ring = 3
    assert set(numbers_of(selector.sample(8))[1:]) == {52, 53, 54}


@pytest.mark.parametrize("half_life", [0.0, 1.5])
def test_pairs_are_drawn_one_after_the_other_by_weight(half_life: float) -> None:
    versions = [3, 5, 5, 8]
    rule = AgeRule(half_life_versions=half_life)
    selector = Filled([*versions, 0], replayed=(2, 3), keep=4, rule=rule, seed=3)
    for _ in range(4):
        selector.sample(2)
    selector.newest, draws = 9, 12_000
    weights = [0.5 ** ((9 - v) / half_life) if half_life else 1.0 for v in versions]
    expected: dict[frozenset[int], float] = {}
    for one, other in permutations(range(4), 2):  # the definition: first one, then another
        share = weights[one] / sum(weights) * weights[other] / (sum(weights) - weights[one])
        pair = frozenset((one, other))
        expected[pair] = expected.get(pair, 0.0) + share
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[frozenset(numbers_of(selector.sample(6))[1:])] += 1
        selector.undo_sample()
    chi_square = sum(
        (counts[pair] - draws * share) ** 2 / (draws * share) for pair, share in expected.items()
    )
    assert chi_square < CHI_SQUARE_5


def test_what_is_too_old_is_not_drawn_again() -> None:
    selector = Filled([*range(6), 9], replayed=(2, 3), keep=8, rule=AgeRule(max_versions=2))
    for _ in range(6):
        selector.sample(2)
    wanted = []
    for selector.newest in (5, 6, 7):
        wanted.append(selector.fresh(6))
    assert wanted == [2, 2, 6]
    selector.newest = 6
    assert set(numbers_of(selector.sample(6))[1:]) == {4, 5}


def test_undone_samples_are_the_next_ones_again() -> None:
    selector = Filled([0] * 4, replayed=(1, 2), keep=1)
    selector.sample(4)
    before = copy.deepcopy(selector.state()), selector.replayed
    assert numbers_of(selector.sample(4)) == [2, 1]
    selector.undo_sample()
    after = selector.state(), selector.replayed
    assert after[0] | {"generator": 0} == before[0] | {"generator": 0}
    assert after[1] == before[1] == 0
    assert numbers_of(selector.sample(4)) == [2, 1]
