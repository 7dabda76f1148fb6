"""Runs side by side: seeds of one experiment belong together, and what their mean and band are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.folder import RunFolder
from session.show.progress import Curve
from surreal_like.addons.analysis.run_groups import band, group
from tests.session.made_run import made_config, made_run


def make(path: Path, seed: int = 0, **settings: object) -> RunFolder:
    return made_run(path, config=made_config(seed, **settings))  # type: ignore[arg-type]


def test_runs_that_differ_in_the_seed_only_are_one_experiment(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"chain-20250101-120000-seed{seed}", seed) for seed in (3, 1, 2)]
    runs.append(make(tmp_path / "other-20250101-120000", 1, session_config__agent__num=7))
    first, second = group(runs)
    assert (first.label, first.seeds) == ("chain", [1, 2, 3])
    assert [run.path.name[-1] for run in first.runs] == ["1", "2", "3"]
    assert (second.label, second.seeds) == ("other", [1])
    assert first.config.session_config.seed == 1


def test_folder_and_launcher_of_a_run_make_no_other_experiment(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / "a", 1, session_config__folder="a", launcher="tmux"),
        make(tmp_path / "b", 2, session_config__folder="b", launcher="serial"),
    ]
    [experiment] = group(runs)
    # Two names: what they have in common is the algorithm and the environment.
    assert experiment.label == "dqn on toy:chain"


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    run = make(tmp_path / "chain-20250101-120000-2")
    [experiment] = group([run, RunFolder(tmp_path / "." / run.path.name)])
    assert (experiment.label, len(experiment.runs)) == ("chain", 1)


def test_seeds_below_one_folder_bear_its_name(tmp_path: Path) -> None:
    runs = [make(tmp_path / "study" / f"seed-{seed}", seed) for seed in (1, 2)]
    [experiment] = group(runs)
    assert experiment.label == "study"


def test_experiments_of_one_name_say_in_what_they_differ(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / "chain-20250101-120000", session_config__agent__num=2),
        make(
            tmp_path / "chain-20250101-120001",
            session_config__agent__num=4,
            learner_config__replay__batch_size=7,
            learner_config__replay__capacity=8,
            learner_config__replay__min_size=9,
        ),
    ]
    first, second = group(runs)
    assert second.label == "chain (batch_size 7, capacity 8, min_size 9, 1 more)"
    assert first.label.startswith("chain (batch_size ")


def test_a_setting_that_an_older_run_lacks_says_least(tmp_path: Path) -> None:
    old = made_config(session_config__agent__num=2)
    del old["learner_config"]["replay"]["batch_size"]
    runs = [
        made_run(tmp_path / "chain-20250101-120000", config=old),
        make(
            tmp_path / "chain-20250101-120001",
            session_config__agent__num=4,
            learner_config__replay__batch_size=32,
        ),
    ]
    assert [each.label for each in group(runs)] == [
        "chain (num 2, 1 more)",
        "chain (num 4, batch_size 32)",
    ]


def test_a_setting_that_an_older_run_lacks_is_its_default(tmp_path: Path) -> None:
    old = made_config(1)
    del old["session_config"]["tensorplex"]["debug_summaries"]
    runs = [
        made_run(tmp_path / "chain-20250101-120000", config=old),
        make(tmp_path / "chain-20250101-120001", 2),
        make(tmp_path / "chain-20250101-120002", 3, session_config__tensorplex__debug_summaries=7),
    ]
    first, second = group(runs)
    assert (first.seeds, second.seeds) == ([1, 2], [3])


# -- mean and band --------------------------------------------------------------------------------


def test_mean_lowest_and_highest_between_the_points() -> None:
    found = band([Curve([0, 10], [0, 10]), Curve([0, 5, 10], [2, 2, 4])], [False, False])
    assert found is not None
    middle = int(np.argmin(abs(found.x - 7.5)))
    x = found.x[middle]
    one, other = x, 2 + (x - 5) * 0.4
    assert found.middle[middle] == pytest.approx((one + other) / 2)
    assert (found.low[middle], found.high[middle]) == pytest.approx((other, one))


def test_it_ends_with_the_first_run_that_ends() -> None:
    found = band([Curve([1, 10], [0, 0]), Curve([2, 20], [2, 2])], [False, False])
    assert found is not None
    assert (found.x[0], found.x[-1]) == (2, 10)


def test_a_run_that_reached_the_goal_keeps_its_last_value() -> None:
    found = band([Curve([0, 10], [0, 8]), Curve([0, 20], [2, 2])], [True, False])
    assert found is not None
    assert (found.x[-1], found.middle[-1], found.high[-1]) == (20, 5, 8)
    found = band([Curve([0, 10], [0, 8]), Curve([0, 20], [2, 2])], [False, True])
    assert found is not None
    assert found.x[-1] == 10


def test_nothing_in_common_is_no_band() -> None:
    assert band([Curve([0, 1], [0, 0]), Curve([5, 9], [2, 2])], [False, False]) is None
    assert band([Curve([], [])], [False]) is None


curves = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), min_size=1, max_size=6).map(
        lambda points: Curve(*map(list, zip(*sorted(dict(points).items()), strict=True)))
    ),
    min_size=1,
    max_size=4,
)


@given(curves, st.lists(st.booleans(), min_size=4, max_size=4))
def test_band_is_what_a_slow_twin_says(some: list[Curve], flags: list[bool]) -> None:
    held = flags[: len(some)]
    found = band(some, held)
    begin = max(curve.x[0] for curve in some)
    ends = [curve.x[-1] for curve, stays in zip(some, held, strict=True) if not stays]
    end = min(ends) if ends else max(curve.x[-1] for curve in some)
    if end < begin:
        assert found is None
        return
    assert found is not None
    for index in (0, 117, 399):
        values = [value_at(curve, float(found.x[index])) for curve in some]
        assert found.middle[index] == pytest.approx(sum(values) / len(values))
        assert found.low[index] == pytest.approx(min(values))
        assert found.high[index] == pytest.approx(max(values))


def value_at(curve: Curve, x: float) -> float:
    """Walk along the curve to x."""
    for (x0, y0), (x1, y1) in zip(
        zip(curve.x, curve.y, strict=True),
        zip(curve.x[1:], curve.y[1:], strict=True),
        strict=False,
    ):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return curve.y[-1]
