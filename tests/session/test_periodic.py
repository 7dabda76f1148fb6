"""Every and Rate, by a clock that the test sets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.periodic import Every, Rate


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def due_at(every: Every, clock: Clock, times: list[float]) -> list[float]:
    """At which of the times (seconds from 100) it is due."""
    due = []
    for time in times:
        clock.now = 100.0 + time
        if every():
            due.append(time)
    return due


def test_every_n_calls() -> None:
    every = Every(calls=3, clock=Clock())
    assert [every() for _ in range(7)] == [False, False, True, False, False, True, False]


def test_every_so_many_seconds_on_a_grid() -> None:
    clock = Clock()
    every = Every(seconds=2.0, clock=clock)
    assert due_at(every, clock, [0, 1, 2, 2, 3, 4.5, 5, 6, 6.5, 8]) == [2, 4.5, 6, 8]


def test_what_was_missed_is_due_once() -> None:
    clock = Clock()
    every = Every(seconds=1.0, clock=clock)
    assert due_at(every, clock, [7.5, 7.6, 7.9, 8.0, 8.1]) == [7.5, 8.0]


def test_whichever_is_first() -> None:
    clock = Clock()
    every = Every(calls=3, seconds=10.0, clock=clock)
    assert due_at(every, clock, [1, 2, 3, 12, 13.5, 14, 15]) == [3, 13.5]


def test_zero_is_never() -> None:
    clock = Clock()
    every = Every(clock=clock)
    assert due_at(every, clock, [0, 1e3, 1e9]) == []


def test_rate_of_a_steady_stream() -> None:
    clock = Clock()
    rate = Rate(memory_seconds=2.0, clock=clock)
    assert rate.per_second() == 0
    for _ in range(1000):
        clock.now += 0.01
        rate.add(3)
    assert rate.total == 3000
    assert rate.per_second() == pytest.approx(300, rel=0.01)


def test_rate_is_right_from_the_start_and_forgets() -> None:
    clock = Clock()
    rate = Rate(memory_seconds=5.0, clock=clock)
    clock.now += 0.5
    rate.add(10)
    clock.now += 0.5
    assert rate.per_second() == pytest.approx(10, rel=0.1)
    clock.now += 100
    assert rate.per_second() < 1e-6


def test_rate_follows_a_change() -> None:
    clock = Clock()
    rate = Rate(memory_seconds=1.0, clock=clock)
    for per_step in (1, 5):
        for _ in range(1000):
            clock.now += 0.01
            rate.add(per_step)
    assert rate.per_second() == pytest.approx(500, rel=0.02)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 100)), min_size=1, max_size=20))
def test_rate_equals_the_sum_over_all_events(events: list[tuple[float, float]]) -> None:
    clock = Clock()
    rate = Rate(memory_seconds=3.0, clock=clock)
    stamped = []
    for pause, amount in events:
        clock.now += pause
        rate.add(amount)
        stamped.append((clock.now, amount))
    clock.now += 1.0
    weights = sum(amount * math.exp((at - clock.now) / 3.0) for at, amount in stamped)
    integral = 3.0 * (1 - math.exp((100.0 - clock.now) / 3.0))
    assert rate.per_second() == pytest.approx(weights / integral)
