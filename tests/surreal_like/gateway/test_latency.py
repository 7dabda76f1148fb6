"""Quantiles and means between two reports."""

from __future__ import annotations

import pytest

from surreal_like.gateway.counters import Mean, Quantiles, Times


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [0, 0]), (2, [1, 1]), (4, [2, 3]), (100, [50, 99]), (1000, [500, 990])],
)
def test_quantiles_by_nearest_rank(count: int, expected: list[float]) -> None:
    quantiles = Quantiles()
    for value in reversed(range(count)):
        quantiles.add(value)
    assert quantiles.pop(0.5, 0.99) == expected
    assert quantiles.pop(0.5, 0.99) == []


def test_the_newest_times_are_kept() -> None:
    quantiles = Quantiles()
    for value in range(10_000):
        quantiles.add(value)
    assert quantiles.pop(0.0) == [10_000 - 4096]


def test_a_mean_begins_anew() -> None:
    mean = Mean()
    assert mean.pop() is None
    mean.add(6.0, 2)
    mean.add(3.0)
    assert mean.pop() == 3.0
    assert mean.pop() is None


def test_times_without_values_are_left_out() -> None:
    times = Times()
    assert times.pop() == {}
    times.latency.add(0.25)
    times.batch.add(3)
    assert times.pop() == {"latency_p50_seconds": 0.25, "latency_p99_seconds": 0.25, "batch": 3.0}
