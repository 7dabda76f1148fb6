"""Population based training: the tables of its decisions."""

import json
import math
from typing import Any

import pytest

from surreal_like.addons.tuning.pbt import PopulationBased
from surreal_like.addons.tuning.scheduler import Decision
from surreal_like.addons.tuning.space_and_mutation import Space

SPACE = Space.of({"f": {"uniform": [0, 100]}, "n": {"randint": [1, 100]}})


def population(size: Any, space: Any = SPACE, settings: Any = None, **options: Any) -> Any:
    settings = settings or [{"f": 2.0, "n": 10}] * size
    return PopulationBased(
        space, settings, **{"perturbation_interval": 10, "resample_probability": 0} | options
    )


def five(**options: Any) -> Any:
    """Five trials that have reported once; returns the number of saves, too."""
    scheduler = population(5, **options)
    reports = [scheduler.report(trial, 10, 50.0 * trial)[trial] for trial in range(5)]
    assert not any(each.load for each in reports)
    return scheduler, sum(each.save for each in reports)


def again(scheduler: Any, **options: Any) -> Any:
    """Returns a new scheduler with the state of another, through a file."""
    copy = population(len(scheduler.members), **options)
    copy.restore(json.loads(json.dumps(scheduler.state())))
    return copy


@pytest.mark.parametrize(
    ("quantile", "sizes"),
    [
        (0.25, dict(zip(range(2, 21), map(int, "1112222333344445555"), strict=False))),
        (0.5, dict(zip(range(2, 9), map(int, "1122334"), strict=True))),
        (0.1, {2: 1, 9: 1, 10: 1, 11: 2, 30: 3}),
        (0.07, {100: 7}),
        (0.25, {1: 0}),
        (0, {8: 0}),
    ],
)
def test_sizes_of_quantiles(quantile: Any, sizes: Any) -> None:
    for size, expected in sizes.items():
        scheduler = population(size, quantile_fraction=quantile)
        for trial in range(size):
            scheduler.report(trial, 10, float(trial))
        lower, upper = scheduler.quantiles()
        assert (lower, upper) == ([*range(expected)], [*range(size - expected, size)])


def test_quantiles_exclude_trials_that_have_finished_or_have_no_score() -> None:
    scheduler, _ = five()
    scheduler.on_end(4)
    assert scheduler.quantiles() == ([0], [3])
    scheduler = population(3)
    scheduler.report(0, 10, 1.0)
    scheduler.report(1, 10, math.nan)
    assert scheduler.quantiles() == ([], [])


def test_the_upper_quantile_saves() -> None:
    scheduler, saves = five(checkpoint="upper")
    assert saves == 4
    assert scheduler.report(0, 15, 200.0) == {0: Decision()}
    assert scheduler.report(0, 20, 200.0) == {0: Decision(save=True)}
    assert scheduler.report(1, 30, 201.0) == {1: Decision(save=True)}
    assert scheduler.members[4].saved is not None
    assert scheduler.report(4, 30, 199.0) == {4: Decision()}
    assert scheduler.members[4].saved is None


@pytest.mark.parametrize(
    ("seed", "loads"),
    [(0, [(3, 1.6, 12), (4, 1.6, 12)]), (1, [(4, 1.6, 12), (4, 2.4, 8)])],
)
def test_lower_trials_exploit(seed: Any, loads: Any) -> None:
    scheduler, saves = five(seed=seed)
    assert saves == 5
    assert scheduler.report(0, 15, -100.0) == {0: Decision()}
    scheduler = again(scheduler, seed=seed)
    first = scheduler.report(0, 20, -100.0)[0]
    second = scheduler.report(2, 20, 40.0)[2]
    found = [(each.load.donor, *each.load.settings.values()) for each in (first, second)]
    assert found == [(donor, pytest.approx(f), n) for donor, f, n in loads]
    assert (first.save, first.then) == (False, "continue")


def test_times_transfer() -> None:
    scheduler, _ = five()
    for report in ((0, 10_000, 1005.0), (1, 10_000, 1004.0), (2, 600, 1003.0)):
        assert scheduler.report(*report)[report[0]].load is None
    assert scheduler.report(3, 500, 1002.0)[3].load.donor == 0
    assert (scheduler.members[3].time, scheduler.members[3].last) == (10_000, 10_000)
    assert scheduler.report(3, 600, 100.0) == {3: Decision()}
    assert scheduler.report(3, 11_000, 100.0)[3].load is not None


@pytest.mark.parametrize(("now", "skips"), [(30, False), (30.1, True)])
def test_old_checkpoints_are_not_taken_over(now: Any, skips: Any) -> None:
    scheduler = population(4, checkpoint="upper")
    for trial, time, score, at in (
        (0, 10, 1, 10),
        (1, 10, 2, 10),
        (2, 10, 3, 10),
        (3, 10, 10, 10),
        (2, 20, 50, 20),
        (2, 30, 5, 30),
    ):
        scheduler.report(trial, time, score, now=at)
    decision = scheduler.report(0, 30, 0.5, now=now)[0]
    assert (decision.load is None, bool(decision.skipped)) == (skips, skips)
    assert skips or decision.load.donor == 3


def test_a_lost_checkpoint_is_skipped() -> None:
    scheduler, _ = five(checkpoint="upper")
    scheduler.members[3].saved = scheduler.members[4].saved = None
    decision = scheduler.report(0, 20, -1.0)[0]
    assert decision.load is None
    assert "has no checkpoint" in decision.skipped
    assert scheduler.members[0].exploits == 0


def test_others_that_wait_get_the_slot() -> None:
    scheduler, _ = five()
    assert scheduler.report(3, 20, 150.0, others_wait=True)[3] == Decision(save=True, then="pause")
    assert scheduler.report(3, 25, 150.0, others_wait=True)[3].then == "continue"


def test_less_is_better() -> None:
    scheduler = population(2, mode="min")
    scheduler.report(0, 10, 1.0)
    assert scheduler.report(1, 10, 2.0)[1].load.donor == 0


def test_settings_of_the_session_stay() -> None:
    space = Space.of({"session_config.agent.num": {"randint": [1, 9]}, "f": {"uniform": [0, 9]}})
    settings = [{"session_config.agent.num": trial + 1, "f": float(trial + 1)} for trial in (0, 1)]
    scheduler = population(2, space, settings)
    scheduler.report(1, 10, 2.0)
    load = scheduler.report(0, 10, 1.0)[0].load
    assert load.settings["session_config.agent.num"] == 1
    assert load.settings["f"] in (pytest.approx(2.4), pytest.approx(1.6))


def test_own_explore() -> None:
    seen = []

    def explore(settings: Any) -> Any:
        seen.append(settings)
        return {**settings, "n": 7}

    scheduler, _ = five(explore=explore)
    assert scheduler.report(0, 20, -1.0)[0].load.settings["n"] == 7
    assert len(seen) == 1


@pytest.mark.parametrize("explore", [lambda s: None, lambda s: {"f": 1.0}, lambda s: 1 / 0])
def test_a_wrong_explore_skips_the_exploit(explore: Any) -> None:
    scheduler, _ = five(explore=explore)
    decision = scheduler.report(0, 20, -1.0)[0]
    assert decision.load is None
    assert decision.save
    assert "explore failed" in decision.skipped


def test_synch_holds_until_the_last_has_come() -> None:
    scheduler = population(5, synch=True, burn_in_period=50, perturbation_interval=5)
    for time in (1, 30):
        for trial in range(5):
            assert scheduler.report(trial, time, 1.0) == {trial: Decision()}
    for trial, time, score in ((0, 50, 1.0), (1, 51, 2.0), (2, 50, math.nan), (3, 50, 4.0)):
        assert scheduler.report(trial, time, score) == {}
    decisions = scheduler.report(4, 52, 9.0)
    assert decisions[0].load.donor == 4
    assert [decisions[trial] for trial in (1, 2, 3, 4)] == [Decision(save=True)] * 4
    assert scheduler.next_sync == 55
    assert scheduler.members[0].time == 52


def test_the_time_of_one_trial_does_not_end_the_comparisons_of_the_others() -> None:
    scheduler = population(3, synch=True)
    for time in (10, 20, 30):
        assert scheduler.report(0, 1e12 + time, 3.0) == {}
        assert scheduler.report(1, time, 2.0) == {}
        assert set(scheduler.report(2, time, 1.0)) == {0, 1, 2}


def test_a_trial_that_ends_does_not_keep_the_others_waiting() -> None:
    scheduler = population(3, synch=True)
    assert scheduler.report(0, 10, 1.0) == {}
    assert scheduler.report(1, 10, 2.0) == {}
    decisions = scheduler.on_end(2)
    assert decisions[0].load.donor == 1
    assert scheduler.on_end(0) == {}


@pytest.mark.parametrize(("start", "end"), [((10, 20, 40), 43), ((30, 20, 10), 33)])
def test_synch_moves_all_to_the_best(start: Any, end: Any) -> None:
    scheduler = population(3, synch=True, perturbation_interval=1)
    states, exploits = [*start], 0
    for iteration in (1, 2, 3):
        decisions: Any = {}
        for trial in range(3):
            decisions |= scheduler.report(trial, iteration, float(iteration + states[trial]))
        for trial, decision in decisions.items():
            if decision.load is not None:
                exploits += 1
                states[trial] = states[decision.load.donor]
    assert [3 + each for each in states] == [end] * 3
    assert exploits == 2


def toy(seed: Any, *, synch: Any, quantile: Any) -> Any:
    """Two trials that each improve one coordinate; returns the scores at the end."""
    space = Space.of({"h0": {"uniform": [0, 1]}, "h1": {"uniform": [0, 1]}})
    settings = [{"h0": 1.0, "h1": 0.0}, {"h0": 0.0, "h1": 1.0}]
    options = {"synch": synch, "quantile_fraction": quantile, "perturbation_interval": 4}
    scheduler = PopulationBased(space, settings, seed=seed, **options)
    points: Any = [[0.9, 0.9], [0.9, 0.9]]
    saved: Any = {}

    def score(point: Any) -> Any:
        # In this order the two trials differ by rounding, so one of them is better.
        return 1.2 - point[0] ** 2 - point[1] ** 2

    for time in range(1, 201):
        decisions: Any = {}
        for trial, point in enumerate(points):
            for j in (0, 1):
                point[j] -= 0.04 * settings[trial][f"h{j}"] * point[j]
            decisions |= scheduler.report(trial, time, score(point))
            saved |= {n: [*points[n]] for n, each in decisions.items() if each.save}
            for n, decision in decisions.items():
                if decision.load is not None:
                    points[n] = [*saved[decision.load.donor]]
                    settings[n] = decision.load.settings
    return [score(point) for point in points]


@pytest.mark.parametrize("synch", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_toy_surface(seed: Any, synch: Any) -> None:
    assert min(toy(seed, synch=synch, quantile=0.5)) > 1.19


def test_toy_surface_without_exploits() -> None:
    assert toy(0, synch=False, quantile=0) == [pytest.approx(0.39, abs=0.005)] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"perturbation_interval": 0},
        {"quantile_fraction": 0.6},
        {"resample_probability": 1.1},
        {"checkpoint": "never"},
        {"perturbation_factors": ()},
        {"mode": "best"},
        {"max_age": -1},
    ],
)
def test_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        population(2, **options)


def reported(scheduler: Any, trial: int, time: float, score: float) -> Any:
    return scheduler.report(trial, time, score)[trial]


def test_a_state_has_no_exploit_that_is_not_carried_out() -> None:
    scheduler, _ = five()
    load = reported(scheduler, 0, 20, -100.0).load
    before = again(scheduler).members[0]
    assert (before.settings, before.exploits) == ({"f": 2.0, "n": 10}, 0)
    # It does not report a comparison again that it has had.
    assert (before.last, before.time) == (20, 20)
    scheduler.on_load(0, load.settings)
    after = again(scheduler).members[0]
    assert (after.settings, after.exploits) == ({"f": 1.6, "n": 12}, 1)
    # Carried out by a tuner that was killed before it saved its state.
    resumed = again(five()[0])
    resumed.on_load(0, load.settings)
    assert (resumed.members[0].settings, resumed.members[0].exploits) == (load.settings, 1)


def test_more_trials_than_the_state_has() -> None:
    scheduler, _ = five()
    more = population(6)
    more.restore(scheduler.state())
    assert [each.score for each in more.members] == [0.0, 50.0, 100.0, 150.0, 200.0, None]
    assert reported(more, 5, 10, 500.0).save
