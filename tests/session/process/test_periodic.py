"""Every and Rate, by a clock that the test sets, and a wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.process.periodic import Every, Rate, Stopwatch, wait_until
from tests.clock import HandClock


def due_at(every: Every, clock: HandClock, times: list[float]) -> list[float]:
    """At which of the times (seconds from 100) it is due."""
    due = []
    for time in times:
        clock.seconds = 100.0 + time
        early = clock.now() < every.at
        if every():
            assert not early
            due.append(time)
    return due


def test_every_n_calls() -> None:
    every = Every(calls=3, clock=HandClock(100.0).now)
    assert [every() for _ in range(7)] == [False, False, True, False, False, True, False]


def test_every_so_many_seconds_on_a_grid() -> None:
    clock = HandClock(100.0)
    every = Every(seconds=2.0, clock=clock.now)
    assert due_at(every, clock, [0, 1, 2, 2, 3, 4.5, 5, 6, 6.5, 8]) == [2, 4.5, 6, 8]


def test_what_was_missed_is_due_once() -> None:
    clock = HandClock(100.0)
    every = Every(seconds=1.0, clock=clock.now)
    assert due_at(every, clock, [7.5, 7.6, 7.9, 8.0, 8.1]) == [7.5, 8.0]


def test_whichever_is_first() -> None:
    clock = HandClock(100.0)
    every = Every(calls=3, seconds=10.0, clock=clock.now)
    assert due_at(every, clock, [1, 2, 3, 12, 13.5, 14, 15]) == [3, 13.5]


def test_zero_is_never() -> None:
    clock = HandClock(100.0)
    every = Every(clock=clock.now)
    assert due_at(every, clock, [0, 1e3, 1e9]) == []


def test_rate_of_a_steady_stream() -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=2.0, clock=clock.now)
    assert rate.per_second() == 0
    for _ in range(1000):
        clock.seconds += 0.01
        rate.add(3)
    assert rate.total == 3000
    assert rate.per_second() == pytest.approx(300, rel=0.01)


def test_rate_is_right_from_the_start_and_forgets() -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=5.0, clock=clock.now)
    clock.seconds += 0.5
    rate.add(5)
    clock.seconds += 0.5
    assert rate.per_second() == pytest.approx(10)
    clock.seconds += 100
    assert rate.per_second() == 0


def test_rate_follows_a_change() -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=1.0, clock=clock.now)
    for per_step in (1, 5):
        for _ in range(1000):
            clock.seconds += 0.01
            rate.add(per_step)
    assert rate.per_second() == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("gap", [0.3, 2.5, 40.0])
def test_rate_of_large_amounts_does_not_jump_between_them(gap: float) -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=10.0, clock=clock.now)
    seen = []
    for number in range(400):
        clock.seconds += gap / 10
        if number % 10 == 9:
            rate.add(1000 * gap)
        if number > 10:
            seen.append(rate.per_second())
    assert min(seen) == pytest.approx(1000, rel=0.01)
    assert max(seen) == pytest.approx(1000, rel=0.01)


def test_rate_falls_when_what_was_due_does_not_come() -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=10.0, clock=clock.now)
    for _ in range(10):
        clock.seconds += 1.0
        rate.add(100)
    before = rate.per_second()
    clock.seconds += 6.0
    assert 0 < rate.per_second() < 0.8 * before


def test_rate_of_a_total_that_goes_on_from_another() -> None:
    clock = HandClock(100.0)
    rate = Rate(clock=clock.now)
    rate.begin(5000.0)
    clock.seconds += 2.0
    rate.reach(5040.0)
    rate.reach(5040.0)
    assert rate.per_second() == pytest.approx(20)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 100)), min_size=1, max_size=50))
def test_rate_is_between_those_of_its_events(events: list[tuple[float, float]]) -> None:
    clock = HandClock(100.0)
    rate = Rate(window_seconds=3.0, clock=clock.now)
    for pause, amount in events:
        clock.seconds += pause
        rate.add(amount)
    least = min(pause for pause, _ in events)
    assert 0 <= rate.per_second() <= 100 / least + 1e-6


class Seconds:
    seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


def test_only_the_time_between_holding_and_letting_go_counts() -> None:
    now = Seconds()
    waiting = Stopwatch(now)
    seen = []
    for seconds, held in [
        (11, False),
        (12, True),
        (13, True),
        (17, False),
        (30, False),
        (31, True),
    ]:
        now.seconds = float(seconds)
        waiting.hold(held)
        seen.append((waiting.seconds, waiting.held))
    assert seen == [(0, False), (0, True), (1, True), (5, False), (5, False), (5, True)]
    now.seconds = 33.0
    assert waiting.seconds == 7  # the present wait counts while it lasts


@pytest.mark.parametrize(("true_at", "seconds", "calls"), [(1, 0, 1), (3, 60, 3), (2, 0, 1)])
def test_a_wait_ends_when_it_is_ready_or_over(true_at: int, seconds: float, calls: int) -> None:
    found: list[int] = []

    def ready() -> bool:
        found.append(0)
        return len(found) >= true_at

    assert wait_until(ready, seconds, look_seconds=0.001) is (true_at <= calls)
    assert len(found) == calls
