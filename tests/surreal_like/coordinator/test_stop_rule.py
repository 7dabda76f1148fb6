"""When a run ends, and why."""

from typing import Any

import pytest

from surreal_like.agent.evaluation import BY_CLIENTS
from surreal_like.coordinator.stop_rule import StopRule

NO_STOP: dict[str, Any] = {
    "eval_return": None,
    "env_steps": None,
    "iterations": None,
    "seconds": None,
    "eval_episodes": 100,
    "metric": None,
    "above": None,
}


GREEDY, SAMPLED = "eval_deterministic", "eval_stochastic"


def used(env_steps: int = 0, iterations: int = 0, seconds: float = 0.0) -> dict[str, float]:
    return {"env_steps": env_steps, "iterations": iterations, "seconds": seconds}


def judge(**stop: Any) -> StopRule:
    return StopRule(NO_STOP | stop, [GREEDY, SAMPLED])


def score(
    mean: float,
    version: int = 1,
    *,
    confirm: bool = False,
    seconds: float = 1.0,
    mode: str = GREEDY,
) -> dict[str, Any]:
    return {
        "mean_return": mean,
        "std_return": 0.0,
        "min_return": mean,
        "max_return": mean,
        "episodes": 100,
        "iteration": version * 10,
        "env_steps": version * 100,
        "wall_seconds": seconds,
        "incarnation": 1,
        "version": version,
        "confirm": confirm,
        "mode": mode,
    }


def test_only_a_confirmed_version_ends_the_run() -> None:
    one = judge(eval_return=475)
    assert one.on_evaluation(score(480))
    assert one.verdict(used()) is None
    one.on_evaluation(score(476, confirm=True, seconds=9.0))
    verdict = one.verdict(used())
    assert verdict is not None
    assert (verdict.status, verdict.goal_met) == ("stopped", True)
    results = one.results()
    assert results["eval"]["confirmed"] == [480, 476]
    assert results["solved"]["greedy_seconds"] == 9.0


@pytest.mark.parametrize(
    ("goal", "shown"),
    [
        (475, "eval_return 475 reached: 480.1, again 476.8"),
        (475.0, "eval_return 475 reached: 480.1, again 476.8"),
        (475.25, "eval_return 475.25 reached: 480.125, again 476.750"),
    ],
)
def test_the_reason_shows_one_decimal_more_than_the_goal_has(goal: float, shown: str) -> None:
    one = judge(eval_return=goal)
    one.on_evaluation(score(480.125))
    one.on_evaluation(score(476.75, confirm=True))
    verdict = one.verdict(used())
    assert verdict is not None
    assert verdict.reason == shown


def test_a_confirmation_below_the_goal_does_not_count() -> None:
    one = judge(eval_return=475)
    assert one.on_evaluation(score(480))
    one.on_evaluation(score(470, confirm=True))
    assert one.verdict(used()) is None
    assert one.results()["solved"]["greedy_seconds"] is None


def test_a_confirmation_of_another_version_does_not_count() -> None:
    one = judge(eval_return=475)
    assert one.on_evaluation(score(480, version=1))
    one.on_evaluation(score(480, version=2, confirm=True))
    assert one.verdict(used()) is None


def test_below_the_goal_nothing_is_played_again() -> None:
    assert not judge(eval_return=475).on_evaluation(score(474.9))
    assert not judge().on_evaluation(score(1e9))


def test_the_confirming_games_are_not_the_best() -> None:
    one = judge(eval_return=475)
    one.on_evaluation(score(480))
    one.on_evaluation(score(500, confirm=True))
    assert one.results()["best_eval"]["mean_return"] == 480


def test_evaluations_of_versions_before_a_load_are_no_scores() -> None:
    one = judge(eval_return=475)
    one.on_evaluation(score(480, version=3))
    one.on_evaluation(score(1.0, version=3, mode=SAMPLED))
    one.begin(5)
    assert (one.last, one.others) == (None, {SAMPLED: None})
    for evaluation in (
        score(480, version=3, confirm=True),
        score(490, version=4),
        score(1.0, version=4, mode=SAMPLED),
    ):
        assert not one.on_evaluation(evaluation)
    assert (one.last, one.others) == (None, {SAMPLED: None})
    assert one.verdict(used()) is None
    assert one.on_evaluation(score(476, version=5))


@pytest.mark.parametrize(
    ("stop", "spent", "ends"),
    [
        ({"env_steps": 100}, used(env_steps=99), False),
        ({"env_steps": 100}, used(100, iterations=1), True),
        ({"iterations": 5}, used(iterations=5), True),
        ({"seconds": 5}, used(seconds=4.9), False),
        ({"seconds": 5}, used(seconds=5.0), True),
        ({}, used(10**9, 10**9, 1e9), False),
    ],
)
def test_budgets(stop: dict[str, Any], spent: dict[str, float], ends: bool) -> None:
    assert (judge(**stop).verdict(spent) is not None) is ends


def test_a_budget_before_the_goal_is_a_goal_not_met() -> None:
    verdict = judge(eval_return=475, env_steps=10).verdict(used(10, iterations=1))
    assert verdict is not None
    assert verdict.goal_met is False
    verdict = judge(env_steps=10).verdict(used(10, iterations=1))
    assert verdict is not None
    assert (verdict.status, verdict.goal_met) == ("stopped", None)


@pytest.mark.parametrize("goal", [None, 475])
def test_a_budget_without_an_update_is_a_failure(goal: float | None) -> None:
    rule = judge(eval_return=goal, env_steps=10, seconds=30)
    # Environment steps go on until the learner has what it needs for its first update.
    assert rule.verdict(used(12, 0, 29.5)) is None
    verdict = rule.verdict(used(12, 0, 30.5))
    assert verdict is not None
    assert (verdict.status, verdict.goal_met) == ("failed", None if goal is None else False)
    assert verdict.reason.endswith("used before the first update")


def test_a_users_own_number_can_be_the_goal() -> None:
    one = judge(metric="my/score", above=3)
    assert one.verdict(used(), {"my/score": 2.9}) is None
    verdict = one.verdict(used(), {"my/score": 3.0})
    assert verdict is not None
    assert verdict.goal_met is True


def test_rolling_needs_a_hundred_episodes() -> None:
    one = judge(eval_return=475)
    one.on_training(500.0, 99, used(7, 0, 1.0))
    assert one.results()["solved"]["rolling_seconds"] is None
    one.on_training(500.0, 100, used(8, 0, 2.0))
    one.on_training(500.0, 100, used(9, 0, 3.0))
    assert one.results()["solved"]["rolling_seconds"] == 2.0
    assert one.results()["solved"]["rolling_env_steps"] == 8


def test_a_resumed_run_keeps_its_best() -> None:
    one, two = judge(eval_return=475), judge(eval_return=475)
    one.on_evaluation(score(300))
    two.restore(one.state())
    two.on_evaluation(score(200, version=2))
    assert two.results()["best_eval"]["mean_return"] == 300
    assert two.results()["eval"]["mean_return"] == 200


def test_a_mode_that_does_not_judge_is_only_shown() -> None:
    one = judge(eval_return=475)
    one.on_evaluation(score(300))
    before = one.results()
    assert not one.on_evaluation(score(480, version=2, mode=SAMPLED))
    one.on_evaluation(score(480, version=2, mode=SAMPLED, confirm=True))
    assert one.results() == before
    assert one.verdict(used()) is None
    assert one.shown()[SAMPLED]["mean_return"] == 480
    two = judge(eval_return=475)
    two.restore(one.state())
    assert two.shown() == one.shown()


def test_scores_of_clients_are_shown_and_decide_nothing() -> None:
    rule = StopRule(NO_STOP | {"eval_return": 475}, [GREEDY])
    assert not rule.on_evaluation(score(1e6, mode=BY_CLIENTS))
    assert not rule.on_evaluation(score(1e6, mode=BY_CLIENTS, confirm=True))
    assert rule.verdict(used(iterations=1)) is None
    assert (rule.last, rule.best) == (None, None)
    assert rule.shown()[BY_CLIENTS]["mean_return"] == 1e6


def test_one_mode_shows_no_other() -> None:
    assert StopRule(NO_STOP, [GREEDY]).shown() == {}
    assert StopRule(NO_STOP, [GREEDY, SAMPLED, GREEDY]).shown() == {SAMPLED: None}
