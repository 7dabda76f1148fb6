"""Which evaluation is the best, of a run and of each policy."""

from __future__ import annotations

from typing import Any

import pytest

from surreal_like.coordinator.best_evaluation import is_best_of_run, is_better, score_of_policy

JOINT: dict[str, Any] = {
    "mean_return": 0.0,
    "version": 7,
    "iteration": 70,
    "episodes": 10,
    "policies": {"left": 2.0, "right": -2.0},
    "versions": {"right": (5, 50)},
}


@pytest.mark.parametrize(
    ("value", "best", "newest", "better"),
    [
        (-3.0, None, False, True),
        (2.0, 1.0, False, True),
        (1.0, 2.0, True, False),
        (1.0, 1.0, False, False),
        (0.0, 0.0, True, True),
    ],
)
def test_the_highest_return_is_the_best_and_of_equal_ones_one(
    value: float, best: float | None, newest: bool, better: bool
) -> None:
    assert is_better(value, best, newest=newest) is better


@pytest.mark.parametrize(
    ("goals", "left", "right", "mean", "better"),
    [
        ({}, 0.0, 0.0, 1.0, True),
        ({}, 9.0, 9.0, -1.0, False),
        ({"left": 1.0}, 3.0, -9.0, -6.0, True),
        ({"left": 1.0}, 1.0, 9.0, 10.0, False),
        ({"left": 1.0, "right": 1.0}, 3.0, -4.0, 9.0, False),
        ({"left": 1.0, "right": 1.0}, 3.0, -3.0, -9.0, True),
    ],
)
def test_a_run_goes_by_the_policies_that_have_goals(
    goals: dict[str, float], left: float, right: float, mean: float, better: bool
) -> None:
    new = {**JOINT, "mean_return": mean, "policies": {"left": left, "right": right}}
    assert is_best_of_run(new, JOINT, goals) is better
    assert is_best_of_run(new, None, goals)


def test_of_equal_evaluations_of_one_policy_the_first_stays_the_best() -> None:
    alone = {"mean_return": 9.0}
    assert not is_best_of_run(alone, alone, {})
    assert is_best_of_run(JOINT, JOINT, {})


def test_a_policy_goes_by_its_own_agents_and_numbers() -> None:
    right, left = score_of_policy(JOINT, "right"), score_of_policy(JOINT, "left")
    assert (right["mean_return"], right["version"], right["iteration"]) == (-2.0, 5, 50)
    assert (left["mean_return"], left["version"], left["iteration"]) == (2.0, 7, 70)
    alone = {"mean_return": 9.0, "version": 1, "iteration": 10}
    assert score_of_policy(alone, "default") == alone
    assert JOINT["mean_return"] == 0.0
