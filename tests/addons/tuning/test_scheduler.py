"""Schedulers that stop trials: their tables, and naive twins."""

import math
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.addons.tuning.scheduler import (
    REPORTS_LIMIT,
    Fifo,
    MedianStopping,
    SuccessiveHalving,
)

REPORTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 12), st.floats(-3, 3) | st.none()), max_size=30
)


def stops(scheduler: Any, trial: Any, time: Any, score: Any) -> Any:
    decision = scheduler.report(trial, time, score)[trial]
    assert decision.then == ("stop" if decision.reason else "continue")
    return decision.then == "stop"


def test_fifo_goes_on() -> None:
    assert not stops(Fifo(), 0, 1, None)
    assert Fifo().on_end(0) == {}


HALVING = [
    (0, 1, 0.1, False),
    (1, 1, 0.2, False),
    (2, 1, 0.3, False),
    (3, 1, 0.15, True),
    (4, 1, 0.4, False),
    (5, 1, 0.05, True),
    (1, 3, 0.5, False),
    (2, 3, 0.45, True),
    (4, 3, 0.6, False),
    (7, 3, 0.7, False),
    (4, 9, 0.6, False),
    (4, 27, 0.6, True),
]


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("restored_at", [None, 6])
def test_halving(mode: Any, restored_at: Any) -> None:
    scheduler = SuccessiveHalving(1, 27, 3, mode)
    assert scheduler.rungs == (1, 3, 9)
    for number, (trial, time, score, expected) in enumerate(HALVING):
        if number == restored_at:
            state, scheduler = scheduler.state(), SuccessiveHalving(1, 27, 3, mode)
            scheduler.restore(state)
        assert stops(scheduler, trial, time, score if mode == "max" else -score) is expected


def test_halving_says_where_it_stopped() -> None:
    scheduler = SuccessiveHalving(2, 20, 2)
    assert scheduler.report(0, 9, 1.0)[0].reason == ""
    assert scheduler.report(1, 5, 0.0)[1].reason == "stopped by asha at 2"
    assert scheduler.report(0, 20, 1.0)[0].reason == "stopped by asha at 20"


@pytest.mark.parametrize("score", [None, math.nan, math.inf])
def test_halving_notes_no_score_that_is_none(score: Any) -> None:
    scheduler = SuccessiveHalving(1, 27)
    assert not stops(scheduler, 0, 1, score)
    assert not stops(scheduler, 1, 1, -5.0)


@pytest.mark.parametrize("arguments", [(0, 5), (5, 5), (1, 5, 1), (1, 5, 3, "best")])
def test_halving_refuses(arguments: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        SuccessiveHalving(*arguments)


@given(REPORTS)
def test_halving_is_like_a_naive_twin(reports: Any) -> None:
    scheduler, seen = SuccessiveHalving(1, 10, 2), set()
    noted: dict[int, list[float]] = {1: [], 2: [], 4: [], 8: []}
    for trial, time, score in reports:
        expected = time >= 10
        for rung, scores in noted.items():
            if time < rung or (trial, rung) in seen:
                continue
            seen.add((trial, rung))
            if score is None:
                continue
            better = len([each for each in scores if each >= score])
            scores.append(score)
            expected |= better >= math.ceil(len(scores) / 2)
        assert stops(scheduler, trial, time, score) is expected


MEDIAN = [
    (0, 1, 1, False),
    (1, 1, 2, False),
    (2, 1, 3, False),
    (3, 1, 0, False),
    (0, 2, 2, False),
    (1, 2, 4, False),
    (2, 2, 6, False),
    (3, 2, 1, True),
    (4, 2, 2.5, False),
]


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("restored_at", [None, 5])
def test_median(mode: Any, restored_at: Any) -> None:
    scheduler = MedianStopping(2, mode=mode)
    for number, (trial, time, score, expected) in enumerate(MEDIAN):
        if number == restored_at:
            state, scheduler = scheduler.state(), MedianStopping(2, mode=mode)
            scheduler.restore(state)
        assert stops(scheduler, trial, time, score if mode == "max" else -score) is expected


def test_median_keeps_the_best_and_some_of_any_number_of_reports() -> None:
    scheduler = MedianStopping(0, min_samples=1)
    for trial, score in ((1, 5.0), (0, 9.0)):
        assert not stops(scheduler, trial, 0, score)
    for time in range(5 * REPORTS_LIMIT):
        assert not stops(scheduler, 0, time, 1.0)
    assert len(scheduler.state()["reports"]["0"]) <= REPORTS_LIMIT


@given(REPORTS)
def test_median_is_like_a_naive_twin(reports: Any) -> None:
    scheduler, past = MedianStopping(3, min_samples=2), []
    for trial, time, score in reports:
        if score is not None:
            past.append((trial, time, score))
        others = {other for other, at, _ in past if other != trial and at <= time}
        means = [fmean(s for o, at, s in past if o == other and at <= time) for other in others]
        mine = [each for number, _, each in past if number == trial]
        counts = score is not None and time >= 3 and len(means) >= 2
        assert stops(scheduler, trial, time, score) is (counts and max(mine) < median(means))
