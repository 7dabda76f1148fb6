"""Curves by name: numbers of progress, tags of TensorBoard, and names that are none."""

from pathlib import Path

import pytest

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.addons.analysis.run_curves import RunCurves, check_metric
from tests.session.made_run import made_events, made_line, made_run


@pytest.fixture
def curves(tmp_path: Path) -> RunCurves:
    lines = [made_line(steps, training=steps / 100) for steps in (100, 200, 300)]
    folder = made_run(tmp_path / "run", lines)
    made_events(folder, "agent/return:agent-0", {100: 1.0, 300: 3.0})
    made_events(folder, "agent/return:agent-1", {200: 4.0, 300: 5.0})
    made_events(folder, "replay.core/size:replay-0", {150: 9.0})
    return RunCurves(folder)


def test_a_number_of_progress(curves: RunCurves) -> None:
    curve = curves.curve("train.mean_return_100", "seconds")
    assert (curve.x, curve.y) == ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert "train.mean_return_100" in curves.numbers()


def test_a_tag_of_several_agents_is_their_mean_where_all_have_points(curves: RunCurves) -> None:
    curve = curves.curve("agent/return", "env_steps")
    assert (curve.x, curve.y) == ([200.0, 300.0], [3.0, 4.0])
    assert curves.tags()["agent/return"] == ["agent-0", "agent-1"]


def test_a_tag_over_seconds_and_updates(curves: RunCurves) -> None:
    assert curves.curve("agent/return", "seconds").x == [2.0, 3.0]
    assert curves.curve("agent/return", "iterations").x == [20.0, 30.0]


def test_the_rows_of_a_shard_are_no_steps(curves: RunCurves) -> None:
    assert curves.curve("replay.core/size", "env_steps").x == [150.0]
    assert curves.counts_rows("replay.core/size")
    assert not curves.counts_rows("agent/return")
    assert not curves.counts_rows("env_steps")
    with pytest.raises(UsageError, match="rows of a replay shard: leave --x seconds away"):
        curves.curve("replay.core/size", "seconds")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("train.mean_return", "did you mean train.mean_return_100"),
        ("agent/retrun", "did you mean agent/return"),
        ("mean_versions", "did you mean lag.mean_versions"),
        ("zzz", "surreal-like plot RUN --list shows all"),
    ],
)
def test_an_unknown_metric_names_those_that_are_near(
    curves: RunCurves, wrong: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=f"no metric '{wrong}' .*{hint}"):
        check_metric(wrong, [curves])


def test_a_metric_that_one_run_has_is_known(curves: RunCurves, tmp_path: Path) -> None:
    empty = RunCurves(made_run(tmp_path / "empty"))
    for metric in ("env_steps", "agent/return"):
        check_metric(metric, [empty, curves])
    with pytest.raises(UsageError, match="no progress was reported yet"):
        check_metric("env_steps", [empty])
    assert RunCurves(RunFolder(tmp_path / "nowhere")).curve("env_steps", "seconds").x == []
