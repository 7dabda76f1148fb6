"""Time for which experience gathers, by a clock that is set."""

from __future__ import annotations

import pytest

from surreal_like.replay.receiver import WakeupCoalescer
from tests.clock import HandClock


def left_after(arrivals: list[tuple[float, int]]) -> list[float]:
    """Milliseconds of rest after each arrival: milliseconds since the one before, and chunks."""
    clock = HandClock(10.0)
    rest, left = WakeupCoalescer(clock.now), []
    for milliseconds, chunks in arrivals:
        clock.seconds += milliseconds / 1000
        rest.begin(chunks)
        left.append(1000 * rest.left)
    return left


@pytest.mark.parametrize("gap", [0.6, 1.0, 3.0, 7.0])
def test_it_lasts_as_long_as_four_chunks_take(gap: float) -> None:
    one_by_one = left_after([(gap, 1)] * 60)
    assert one_by_one == sorted(one_by_one)
    assert one_by_one[-1] == pytest.approx(4 * gap, rel=0.01)
    assert left_after([(4 * gap, 4)] * 20)[-1] == pytest.approx(4 * gap, rel=0.01)


def test_it_is_never_long() -> None:
    assert max(left_after([(1000.0, 1)] * 90)) == pytest.approx(30.0, rel=0.001)


def test_there_is_none_where_chunks_come_together_by_themselves() -> None:
    assert left_after([(0.2, 1)] * 60 + [(1.2, 1), (0.3, 8)] * 5) == [pytest.approx(0.0)] * 70


def test_it_ends_soon_when_they_begin_to_come_fast() -> None:
    slow = [(7.0, 1)] * 60
    fast = left_after([*slow, (28.0, 8), (14.0, 8), (7.0, 8), (3.5, 8)])[60:]
    assert fast == [pytest.approx(each) for each in (14.0, 7.0, 3.5, 0.0)]


def test_it_ends() -> None:
    clock = HandClock(10.0)
    rest = WakeupCoalescer(clock.now)
    assert rest.left <= 0.0
    clock.seconds += 1.0
    rest.begin(8)
    clock.seconds += 0.029
    assert 0.0 < rest.left < 0.002
    clock.seconds += 0.002
    assert rest.left < 0.0
