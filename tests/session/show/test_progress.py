"""Numbers of progress as curves: the right axis, each point once, whatever is missing."""

import json
from pathlib import Path

import pytest

from session.show.progress import AXES, Progress, axis_of, numbers
from tests.session.made_run import made_line

LINES = [
    made_line(100, training=1.0),
    made_line(200, training=2.0, greedy=5.0),
    made_line(300, training=3.0, eval=made_line(200, greedy=5.0)["eval"], extra=7.0),
]


def write(path: Path, lines: list[dict[str, object]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "progress.jsonl", LINES)
    return tmp_path / "progress.jsonl"


def test_a_number_over_each_axis(path: Path) -> None:
    progress = Progress(path)
    assert progress.read()
    for axis, xs in {
        "env_steps": [100, 200, 300],
        "seconds": [1, 2, 3],
        "iterations": [10, 20, 30],
    }.items():
        curve = progress.curve("train.mean_return_100", axis)
        assert (curve.x, curve.y) == (xs, [1.0, 2.0, 3.0])


def test_an_evaluation_stands_at_its_own_steps_and_only_once(path: Path) -> None:
    progress = Progress(path)
    progress.read()
    assert progress.curve("eval.mean_return").x == [200.0]
    assert progress.curve("eval.mean_return", "seconds").x == [2.0]
    assert progress.curve("eval.mean_return", "iterations").x == [20.0]


def test_evaluations_that_end_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    late, early = made_line(200, greedy=2.0)["eval"], made_line(100, greedy=1.0)["eval"]
    write(tmp_path / "p", [made_line(250, eval=late), made_line(300, eval=early)])
    progress = Progress(tmp_path / "p")
    progress.read()
    assert progress.curve("eval.mean_return").y == [1.0, 2.0]


@pytest.mark.parametrize("wanted", [None, {"eval.mean_return"}])
def test_the_best_evaluation_is_a_point_though_no_line_had_it_as_the_newest(
    tmp_path: Path, wanted: set[str] | None
) -> None:
    best, last = made_line(100, greedy=9.0)["eval"], made_line(120, greedy=2.0)["eval"]
    write(tmp_path / "p", [made_line(130, eval=last, best_eval=best)])
    progress = Progress(tmp_path / "p", wanted)
    progress.read()
    curve = progress.curve("eval.mean_return")
    assert (curve.x, curve.y) == ([100.0, 120.0], [9.0, 2.0])


def test_what_grows_is_read_on(path: Path) -> None:
    progress = Progress(path)
    progress.read()
    assert not progress.read()
    write(path, [made_line(400, training=4.0, extra=8.0)])
    assert progress.read()
    assert progress.curve("train.mean_return_100").y == [1.0, 2.0, 3.0, 4.0]
    assert progress.curve("extra").x == [300.0, 400.0]
    assert progress.line["env_steps"] == 400


def test_unknown_numbers_and_missing_files_give_no_points(path: Path) -> None:
    progress = Progress(path.with_name("none"))
    assert not progress.read()
    assert progress.curve("env_steps").x == []
    assert progress.line == {}
    progress = Progress(path)
    progress.read()
    assert progress.curve("nobody.knows").x == []
    # Reported as null: no value is no point.
    assert progress.curve("lag.mean_updates").x == []


def test_only_what_is_wanted_is_kept(path: Path) -> None:
    progress = Progress(path, ["train.mean_return_100"])
    progress.read()
    names = {"train.mean_return_100", *AXES.values()}
    assert names <= set(progress.names())
    assert "waiting_share" not in progress.names()
    assert progress.curve("train.mean_return_100", "seconds").x == [1.0, 2.0, 3.0]


def test_a_line_from_elsewhere_counts_once(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "none")
    for line in (LINES[0], LINES[0], {}, LINES[1]):
        progress.add(line)
    assert progress.curve("env_steps").y == [100.0, 200.0]
    assert len(progress._columns["env_steps"]) == 2


def test_a_number_may_vanish_and_come_back(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "none")
    for line in (made_line(100, extra=1.0), made_line(200), made_line(300, extra=3.0)):
        progress.add(line)
    curve = progress.curve("extra")
    assert (curve.x, curve.y) == ([100.0, 300.0], [1.0, 3.0])


def test_names_are_dotted_and_only_numbers_count() -> None:
    line = {"a": 1, "b": {"c/d": 2.5, "e": None, "f": [1, 2]}, "g": True, "h": "text"}
    assert dict(numbers(line)) == {"a": 1.0, "b.c/d": 2.5}


def test_axis_of_a_name() -> None:
    assert axis_of("train.mean_return_100", "seconds") == "wall_seconds"
    assert axis_of("best_eval.mean_return", "iterations") == "best_eval.iteration"
