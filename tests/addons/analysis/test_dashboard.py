"""The dashboard of a run, without a notebook: a stand-in commands the run, its files are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from session.addons.analysis.dashboard import Dashboard, best_launcher
from session.errors import UsageError
from tests.add_ons import needs
from tests.session.fake_run import FakeRun, status
from tests.session.made_run import made_beat, made_config, made_line, made_run

LINES = [made_line(100), made_line(200, greedy=3.0, training=1.5)]
LOG = """\
2025-01-31 12:00:00.123 INFO     agent-0: start
2025-01-31 12:00:01.123 WARNING  agent-0: slow
    for this reason
2025-01-31 12:00:02.123 INFO     agent-0: acting
"""


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    config = made_config(3, session_config__stop__eval_return=10)
    folder = made_run(tmp_path / "run", LINES, config=config)
    (folder.logs / "agent-0.log").write_text(LOG)
    return FakeRun(folder)


@pytest.fixture
def board(run: FakeRun) -> Dashboard:
    return Dashboard(run)


def test_rows_numbers_and_title(board: Dashboard) -> None:
    assert [row["name"] for row in board.components()] == ["learner", "agent-0", "agent-1"]
    assert board.names() == ["learner", "agent-0", "agent-1"]
    assert board.numbers()["env_steps"] == 200
    shown = board.headline()
    assert ("greedy return", "3.0, best 3.0") in shown
    assert ("goal", "3.0 of 10.0 greedy return") in shown
    assert ("training return", "1.5, last 100 episodes") in shown
    assert ("env steps", "200, 100/s") in shown
    # No name stands twice.
    assert len({name for name, _ in shown}) == len(shown)
    assert ("policy lag", "2.5 versions, - updates") in shown
    assert board.title().startswith("dqn on toy:chain · seed 3 · running on local · after 00:02 · ")


def test_the_table_as_text(board: Dashboard) -> None:
    first, numbers, conditions, components = board.table().split("\n\n")
    assert first.splitlines()[1] == "running on local · after 00:02"
    assert numbers.splitlines()[0].endswith("  greedy return     3.0  best 3.0")
    assert conditions.startswith("goal  ━━━━━━━─────────────────  3.0 of 10.0 greedy return")
    head, *rows = components.splitlines()
    assert head.split()[:2] == ["component", "state"]
    assert [row.split()[:2] for row in rows] == [
        ["learner", "running"],
        ["agent-0", "running"],
        ["agent-1", "running"],
    ]


def test_before_the_first_report_there_is_a_table_too(run: FakeRun) -> None:
    run.folder.progress.unlink()
    board = Dashboard(run)
    assert board.headline() == []
    assert "agent-0" in board.table()
    assert board.picture().startswith(b"\x89PNG")


def test_refreshing_reads_what_is_new(board: Dashboard, run: FakeRun) -> None:
    with run.folder.progress.open("a") as file:
        file.write(json.dumps(made_line(300, greedy=7.0)) + "\n")
    run.rows["eval-0"] = status("eval-0")
    assert board.numbers()["env_steps"] == 200
    board.refresh()
    assert board.numbers()["env_steps"] == 300
    assert "eval-0" in board.names()


def test_where_the_folder_is_elsewhere_the_newest_lines_are_kept(run: FakeRun) -> None:
    run.folder.progress.unlink()
    board = Dashboard(run)
    for line in LINES:
        run.line = line
        board.refresh()
        board.refresh()
    assert board.numbers() == LINES[-1]
    assert board.view.progress.curve("rates.env_steps_per_second", "seconds").x == [1.0, 2.0]


def test_the_figure_has_returns_throughput_and_lag(board: Dashboard) -> None:
    returns, throughput, lag, updates = board.figure().axes
    drawn = {str(line.get_label()): points(line) for line in returns.lines}
    assert drawn["greedy"] == [[2.0, 3.0]]
    assert drawn["training"] == [[1.0, 0.0], [2.0, 1.5]]
    assert drawn["goal"][0][1] == 10.0
    assert points(throughput.lines[0]) == [[1.0, 100.0], [2.0, 100.0]]
    assert points(updates.lines[0]) == [[1.0, 10.0], [2.0, 10.0]]
    assert points(lag.lines[0]) == [[1.0, 2.5], [2.0, 2.5]]
    assert board.picture().startswith(b"\x89PNG")


def test_a_mode_that_does_not_judge_is_shown(board: Dashboard, run: FakeRun) -> None:
    shown = {"mean_return": 7.0, "env_steps": 150, "iteration": 15, "wall_seconds": 1.5}
    with run.folder.progress.open("a") as file:
        file.write(json.dumps(made_line(200, greedy=3.0, eval_deterministic=shown)) + "\n")
    board.refresh()
    assert ("deterministic return", "7.0, does not judge") in board.headline()
    figure = board.figure()
    drawn = {str(line.get_label()): points(line) for line in figure.axes[0].lines}
    assert drawn["deterministic"] == [[1.5, 7.0]]
    check_legends(figure)


def points(line: Line2D) -> list[list[float]]:
    found: list[list[float]] = np.asarray(line.get_xydata()).tolist()
    return found


def test_output_and_errors_of_a_component(board: Dashboard, run: FakeRun) -> None:
    assert board.output("agent-0", 2)[-1].endswith("acting")
    assert board.errors("agent-0") == [
        "2025-01-31 12:00:01.123 WARNING  agent-0: slow",
        "    for this reason",
    ]
    with (run.folder.logs / "agent-0.log").open("a") as file:
        file.write("Traceback (most recent call last):\nValueError: no\n")
    assert board.errors("agent-0")[-2:] == [
        "Traceback (most recent call last):",
        "ValueError: no",
    ]
    assert board.output("nobody") == board.errors("nobody") == []


def test_agents_come_and_go(board: Dashboard, run: FakeRun) -> None:
    assert board.add_agent() == 3
    assert board.remove_agent() == 2
    assert run.commands == [("agent", 3), ("agent", 2)]
    run.rows["agent-2"] = status("agent-2", "gone")
    assert board.add_agent() == 3
    for name in ("agent-0", "agent-1", "agent-2"):
        run.rows[name] = status(name, "gone")
    assert board.remove_agent() == 0


def test_agents_of_other_machines_are_not_counted(board: Dashboard, run: FakeRun) -> None:
    run.rows["agent-1000"] = status("agent-1000")
    assert board.add_agent() == 3


def test_killing_ends_the_process_as_a_fault_would(board: Dashboard, run: FakeRun) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    run.rows["agent-0"] = status("agent-0", pid=child.pid)
    assert board.kill("agent-0") == child.pid
    assert child.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("name", ["learner", "nobody"])
def test_what_has_no_process_here_cannot_be_killed(board: Dashboard, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' has no process on this machine"):
        board.kill(name)


def test_a_process_that_is_gone_meanwhile_cannot_be_killed(board: Dashboard, run: FakeRun) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    run.rows["agent-0"] = status("agent-0", pid=child.pid)
    with pytest.raises(UsageError, match="could be killed"):
        board.kill("agent-0")


def test_restart_and_stop_reach_the_run(board: Dashboard, run: FakeRun) -> None:
    board.restart("learner")
    assert not board.wait(0.0)
    board.stop()
    assert run.commands == [("restart", "learner"), ("stop", True, "stopped from the dashboard")]
    assert board.wait(0.0)
    assert not board.running
    board.stop()
    assert len(run.commands) == 2
    board.close()
    assert run.commands[-1] == "closed"


def test_a_finished_run_is_shown_from_its_files(tmp_path: Path) -> None:
    result = {
        "status": "stopped",
        "reason": "goal\nreached",
        "components": {"learner": {"restarts": 2, "exit_code": 0, "alive_seconds": 9.0}},
    }
    folder = made_run(tmp_path / "run", LINES, result=result)
    made_beat(folder, "learner", "done", os.getpid())
    board = Dashboard(tmp_path / "run")
    assert not board.running
    assert board.state() == "done: goal reached"
    [row] = board.components()
    assert (row["name"], row["state"], row["restarts"], row["exit_code"]) == (
        "learner",
        "done",
        2,
        0,
    )
    assert board.pages() == {}
    board.stop()
    with pytest.raises(UsageError, match="is not running"):
        board.add_agent()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        Dashboard(tmp_path)


@needs("tmux")
def test_tmux_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session.addons.analysis.dashboard.which", lambda name: f"/bin/{name}")
    assert best_launcher() == "tmux"
    monkeypatch.setattr("session.addons.analysis.dashboard.which", lambda name: None)
    assert best_launcher() == "local"


def test_no_legend_covers_a_line(board: Dashboard) -> None:
    check_legends(board.figure())


def check_legends(figure: Figure) -> None:
    figure.canvas.draw()
    legends = 0
    for axes in figure.axes:
        if (legend := axes.get_legend()) is not None:
            legends += 1
            assert legend.get_window_extent().y0 >= axes.get_window_extent().y1
            assert legend.get_window_extent().y1 <= figure.bbox.y1
            title = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
            assert legend.get_window_extent().x0 >= title.x1
    assert legends == 3
