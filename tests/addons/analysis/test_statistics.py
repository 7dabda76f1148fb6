"""Statistics of a few seeds: golden numbers, and each formula once more, run by run."""

import itertools
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.addons.analysis.statistics import (
    iqm,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

SCORES = [[0.1, 0.9], [0.4, 1.2], [0.6, 1.0], [0.2, 0.8], [0.5, 1.5]]
OTHERS = [[0.1, 0.7], [0.3, 1.0], [0.5, 1.1], [0.2, 0.6], [0.4, 0.9]]
NUMBERS = st.floats(-100, 100, allow_nan=False)
TABLES = st.integers(1, 4).flatmap(
    lambda tasks: st.lists(
        st.lists(NUMBERS, min_size=tasks, max_size=tasks), min_size=1, max_size=9
    )
)


def slow_trimmed_mean(numbers: list[float], share: float) -> float:
    """The mean without this share at each end, rounded down: scipy's `trim_mean`."""
    kept = sorted(numbers)
    for _ in range(int(share * len(numbers))):
        del kept[0], kept[-1]
    return statistics.fmean(kept)


def test_golden_numbers() -> None:
    assert iqm(SCORES) == pytest.approx(0.7, rel=1e-9)
    assert optimality_gap(SCORES) == pytest.approx(0.35, rel=1e-9)
    thresholds = [0, 0.25, 0.5, 0.75, 1, 1.25]
    profile = performance_profile(SCORES, thresholds)
    assert profile.tolist() == pytest.approx([1, 0.8, 0.6, 0.5, 0.2, 0.1])
    assert probability_of_improvement(SCORES, OTHERS) == pytest.approx(0.66)
    low, high = stratified_interval(SCORES)
    assert (low, high) == (pytest.approx(0.567, abs=0.02), pytest.approx(0.85, abs=0.02))


@given(TABLES)
def test_interquartile_mean_is_that_of_the_sorted_list(table: list[list[float]]) -> None:
    flat = list(itertools.chain(*table))
    assert iqm(table) == pytest.approx(slow_trimmed_mean(flat, 0.25), abs=1e-9)
    assert iqm([table, table]) == pytest.approx([iqm(table)] * 2)


@given(TABLES, TABLES)
def test_improvement_counts_every_pair(ours: list[list[float]], theirs: list[list[float]]) -> None:
    tasks = min(len(ours[0]), len(theirs[0]))
    ours, theirs = [row[:tasks] for row in ours], [row[:tasks] for row in theirs]
    per_task = [
        statistics.fmean(
            1.0 if one[k] > other[k] else 0.5 if one[k] == other[k] else 0.0
            for one, other in itertools.product(ours, theirs)
        )
        for k in range(tasks)
    ]
    assert probability_of_improvement(ours, theirs) == pytest.approx(statistics.fmean(per_task))


def test_runs_are_drawn_within_their_task() -> None:
    """The mean of each task varies; one task's scores never appear in another."""
    low, high = stratified_interval([[0, 10], [1, 11], [2, 12]], lambda x: x.max(axis=1))
    assert all(low >= [0, 10])
    assert all(high <= [2, 12])
    assert high[0] == 2
    constant = stratified_interval([[3, 7]] * 4)
    assert constant == (5, 5)


def test_an_interval_is_that_of_its_seed() -> None:
    assert stratified_interval(SCORES, seed=3) == stratified_interval(SCORES, seed=3)
    assert stratified_interval(SCORES, seed=3) != stratified_interval(SCORES, seed=4)


def test_tasks_are_drawn_independently() -> None:
    """With runs drawn as whole rows, opposite tasks would cancel and the interval be a point."""
    low, high = stratified_interval([[0, 4], [1, 3], [2, 2], [3, 1], [4, 0]])
    assert high - low > 0.5


def test_an_interval_of_two_methods_draws_both() -> None:
    low, high = stratified_interval(SCORES, probability_of_improvement, OTHERS)
    assert 0.2 < low < 0.66 < high < 1
    assert stratified_interval([[1.0]] * 3, probability_of_improvement, [[0.0]] * 5) == (1, 1)


def test_intervals_hold_the_mean_as_often_as_the_page_says() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "using_results.md").read_text()
    stated = re.search(
        r"of three .*? (\d+) % .*? five in (\d+) %, of ten in (\d+) %", " ".join(page.split())
    )
    assert stated is not None
    for runs, share in zip((3, 5, 10), stated.groups(), strict=True):
        cut = runs // 4

        def of_each(draws: np.ndarray, cut: int = cut) -> Any:
            return np.sort(draws, axis=1)[:, cut : draws.shape[1] - cut].mean(axis=1)

        # Each task is one comparison of its own.
        scores = np.random.default_rng(0).normal(size=(runs, 2000))
        low, high = stratified_interval(scores, of_each, draws=400)
        assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(int(share) / 100, abs=0.015)


def test_many_runs_are_drawn_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def mean(table: np.ndarray) -> np.ndarray:
        sizes.append(len(table))
        return np.asarray(table.mean(axis=(1, 2)))

    monkeypatch.setattr("surreal_like.addons.analysis.statistics._BLOCK_NUMBERS", 70)
    stratified_interval(SCORES, mean, draws=20)
    assert sizes == [7, 7, 6]


@pytest.mark.parametrize("scores", [[], [1.0, 2.0], [[float("nan")]], [[float("inf"), 1]]])
def test_what_is_no_table_of_scores_is_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"shape|finite"):
        iqm(scores)


def test_methods_with_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="of 2 and of 1 tasks"):
        probability_of_improvement(SCORES, [[1.0]])
