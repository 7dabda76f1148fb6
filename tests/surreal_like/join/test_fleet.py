"""The number of machines follows the run's numbers within its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from surreal_like.join.fleet import Bounds, Target


def looks(learner: float, senders: float, begin: int, end: int) -> Iterator[dict[str, float]]:
    """A look each second."""
    for second in range(begin, end):
        yield {"wall_seconds": second, "learner_waits": learner, "senders_wait": senders}


def follow(target: Target, learner: float, senders: float, begin: int, end: int) -> list[int]:
    """The numbers after each change."""
    changes = [target.follow(load) for load in looks(learner, senders, begin, end)]
    return [int(change.split()[0]) for change in changes if change]


def test_a_learner_that_waits_gets_more_machines_up_to_the_most() -> None:
    target = Target(Bounds(2, 5))
    assert follow(target, 0.9, 0.0, 0, 400) == [3, 4, 5]
    assert target.number == 5


def test_senders_that_wait_lose_machines_down_to_the_least() -> None:
    target = Target(Bounds(2, 5))
    follow(target, 0.9, 0.0, 0, 200)
    assert follow(target, 0.0, 0.9, 200, 900) == [4, 3, 2]


def test_between_the_limits_nothing_changes() -> None:
    target = Target(Bounds(2, 5))
    assert follow(target, 0.15, 0.4, 0, 300) == []
    assert target.number == 2


def test_a_change_has_thirty_seconds_before_the_next() -> None:
    target, times = Target(Bounds(1, 9)), []
    for load in looks(0.9, 0.0, 0, 200):
        if target.follow(load):
            times.append(load["wall_seconds"])
    assert all(later - earlier >= 30 for earlier, later in pairwise(times))
    assert len(times) >= 4


def test_a_number_that_is_fixed_follows_nothing() -> None:
    target = Target(Bounds(3, 3))
    assert follow(target, 0.9, 0.0, 0, 200) == []
    assert target.number == 3


def test_the_same_look_again_and_a_run_that_went_back_change_nothing() -> None:
    target = Target(Bounds(1, 4))
    assert target.follow({}) == ""
    (load,) = looks(0.9, 0.0, 50, 51)
    for _ in range(500):
        assert target.follow(load) == ""
    assert follow(target, 0.9, 0.0, 0, 25) == []


def test_a_change_says_why() -> None:
    target = Target(Bounds(1, 4))
    (change,) = [text for load in looks(0.5, 0.1, 0, 40) if (text := target.follow(load))]
    assert change == "2 machines from now on: learner waits 50 %, agents wait -"


def test_a_tuning_gets_machines_for_the_slots_that_it_wants() -> None:
    target = Target(Bounds(1, 5), slots=4)
    assert target.follow({}, 9) == "3 machines from now on: 9 slots wanted"
    assert target.follow({}, 9) == ""
    assert target.follow({}, 400) == "5 machines from now on: 400 slots wanted"
    assert target.follow({}, 0) == "1 machine from now on: 0 slots wanted"
