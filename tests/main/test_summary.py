"""How a run that has ended is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from main.cli.summary import outcome, seeds_table, summary
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.folder import RunFolder
from session.program import path_from_here
from surreal_like.experiment.resolve import defaults
from surreal_like.run.train import Run
from tests.add_ons import needs
from tests.session.made_run import STARTED, made_config, made_line, made_run

SOLVED: dict[str, Any] = {
    "status": "stopped",
    "goal_met": True,
    "reason": "eval_return 475 reached: 489.2, again 491.0",
    "wall_seconds": 12.3,
    "env_steps": 46_300,
    "best_eval": {"mean_return": 491.0, "episodes": 100, "iteration": 4400, "env_steps": 46_000},
    "train": {"mean_return_100": 233.8},
    "rates": {"samples_per_insert": 8.2},
    "lag": {"mean_versions": 1.9, "max_versions": 8, "mean_updates": 13.4},
    "experience": {
        "pushed": 10,
        "inserted": 7,
        "dropped": 1,
        "holes": 2,
        "unacked": 0,
        "learned": 6,
        "lost": 5,
        "rolled_back": 3,
    },
    "solved": {"greedy_seconds": 11.8, "greedy_env_steps": 46_300},
    "latency": {"collect_seconds": 0.12, "in_replay_seconds": 2.1},
    "components": {"agent-0": {"restarts": 1}, "learner": {"restarts": 0}},
}
BUDGET = {**SOLVED, "goal_met": False, "reason": "budget of 9 env_steps used", "solved": {}}
COUNTED = {**SOLVED, "real_seconds": 18.4}
# Without agents.
CLONED = {
    **SOLVED,
    "env_steps": 0,
    "iterations": 4800,
    "solved": {"greedy_seconds": 11.8, "greedy_env_steps": 0},
}
UNSTARTED = {"status": "interrupted", "goal_met": None, "reason": "before\nthe learner"}


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All programs are on the path."""
    monkeypatch.setattr("session.program.which", lambda name: f"/bin/{name}")


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (SOLVED, f"solved in 11.8 s and 46,300 env steps: {SOLVED['reason']}"),
        (CLONED, f"solved in 11.8 s: {SOLVED['reason']}"),
        ({**CLONED, "solved": {}}, f"goal met after 00:12 and 4,800 updates: {SOLVED['reason']}"),
        (BUDGET, "goal not met after 00:12 and 46,300 env steps: budget of 9 env_steps used"),
        (
            {**BUDGET, "goal_met": None},
            "done after 00:12 and 46,300 env steps: budget of 9 env_steps used",
        ),
        (
            {**BUDGET, "goal_met": True},
            "goal met after 00:12 and 46,300 env steps: budget of 9 env_steps used",
        ),
        (
            {**BUDGET, "status": "failed"},
            f"failed after 00:12 and 46,300 env steps: {BUDGET['reason']}",
        ),
        (UNSTARTED, "interrupted: before the learner"),
        ({**UNSTARTED, "reason": "interrupted"}, "interrupted"),
        (
            COUNTED,
            "solved at 11.8 s of counted time and 46,300 env steps, 00:18 in all: "
            f"{SOLVED['reason']}",
        ),
        (
            {**BUDGET, "real_seconds": 78.4},
            "goal not met after 01:18 (00:12 counted) and 46,300 env steps: "
            "budget of 9 env_steps used",
        ),
    ],
)
def test_the_outcome_in_one_line(result: dict[str, Any], line: str) -> None:
    assert outcome(result) == line


@needs("doctor")
def test_the_summary_shows_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    shares = ((0, 1.0), (5, 0.1), (9, 0.3))
    rows_of = {"greedy": 1.0, "experience": SOLVED["experience"]}
    lines = [made_line(10 * i, waiting_share=share, **rows_of) for i, share in shares]
    (tmp_path / "progress.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "result.json").write_text(json.dumps(SOLVED))
    made_config().dump_file(tmp_path / "config.yaml")
    lost = {
        "event": "not_written",
        "sink": "wandb",
        "component": "tensorplex",
        "detail": "sink wandb: points lost: 9",
    }
    (tmp_path / "events.jsonl").write_text(f"{json.dumps({**lost, 'time': STARTED})}\n")
    shown = "\n".join(summary(Run(tmp_path, SOLVED))).splitlines()
    rows = dict(
        zip(
            (line[:20].strip() for line in shown[1:]),
            (line[20:].strip() for line in shown[1:]),
            strict=True,
        )
    )
    assert rows["best greedy return"] == (
        "491.0 over 100 episodes, at update 4,400 and 46,000 env steps"
    )
    assert rows["experience"] == (
        "10 rows pushed = 7 inserted + 1 dropped + 2 holes; 5 lost with a replay shard; 3 rolled "
        "back after bad updates; 6 learned from; each sampled 8.2 times"
    )
    assert rows["policy lag"] == "1.9 versions, 13.4 updates on average; at most 8 versions"
    assert rows["where the time went"] == "collect 120 ms, in replay 2.1 s"
    assert rows["doctor"] == (
        "learner: learning sets the pace (learner waits 20 % of its time, agents wait 0 %); "
        "odd: dropped rows (1 of 10 rows), lost rows (rows: 5 lost, 2 holes), "
        "restarts (agent-0 1x)"
    )
    assert rows["not written"] == "tensorplex: not_written: sink wandb: points lost: 9"
    assert rows["restarts"] == "agent-0 1x"
    assert rows["next"] == f"surreal-like evaluate {tmp_path}"


def test_of_counted_time_no_durations_are_shown(tmp_path: Path) -> None:
    made_run(tmp_path, [made_line(50, waiting_share=0.1)], config=made_config(launcher="serial"))
    lines = "\n".join(summary(Run(tmp_path, COUNTED)))
    assert "learner waits" not in lines
    assert "where the time went" not in lines
    assert "(counted)" in seeds_table({1: Run(tmp_path, COUNTED)})


def test_a_long_text_goes_on_below_itself(tmp_path: Path) -> None:
    lines = summary(Run(tmp_path, SOLVED), width=60)
    assert " ".join(lines[:2]) == outcome(SOLVED)
    assert max(map(len, lines[:2])) <= 60
    place = lines.index("experience            10 rows pushed = 7 inserted + 1")
    assert lines[place + 1] == " " * 22 + "dropped + 2 holes; 5 lost with a"
    # A path is never broken: it is there to be copied.
    assert f"run folder            {tmp_path}" in lines


def test_commands_to_copy_stand_in_one_line(tmp_path: Path) -> None:
    lines = summary(Run(tmp_path, BUDGET), width=40)
    assert f"{'next':<22}surreal-like train --resume --folder {tmp_path}" in lines


def test_commands_are_those_of_this_environment_where_a_terminal_would_find_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.program.which", lambda name: None)
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    lines = "\n".join(summary(Run(tmp_path, SOLVED)))
    ours = path_from_here(Path(sys.executable).with_name("surreal-like"))
    assert f"{ours} evaluate {tmp_path}" in lines


@pytest.mark.parametrize(
    ("algorithm", "relation", "advised"),
    [("dqn", 0.0, True), ("dqn", 0.5, False), ("ppo", 0.0, False)],
)
def test_rows_that_were_hardly_used_are_pointed_out(
    tmp_path: Path, algorithm: str, relation: float, advised: bool
) -> None:
    user = {"algorithm": algorithm, "learner_config": {"replay": {"samples_per_insert": relation}}}
    default = defaults(algorithm).extend(BASE_CONFIG, abstract=True)
    Config(user).extend(default, abstract=True).dump_file(RunFolder(tmp_path).config)
    result = {**SOLVED, "rates": {"samples_per_insert": 0.6}}
    said = "each row was sampled 0.6 times: set learner_config.replay.samples_per_insert (128"
    assert (said in "\n".join(summary(Run(tmp_path, result)))) == advised


def test_what_to_do_next_depends_on_how_it_ended(tmp_path: Path) -> None:
    def last(result: dict[str, Any]) -> str:
        return "\n".join(summary(Run(tmp_path, result)))

    assert "--resume" not in last(SOLVED)
    assert f"surreal-like train --resume --folder {tmp_path}" in last(BUDGET)
    assert f"surreal-like train --resume --folder {tmp_path}" in last(UNSTARTED)
    assert f"surreal-like logs {tmp_path}" in last({**BUDGET, "status": "failed"})
    assert "evaluate" not in last(SOLVED)


def test_seeds_in_a_table_with_median_and_band() -> None:
    def run(seconds: float | None, result: dict[str, Any]) -> Run:
        solved = {"greedy_seconds": seconds, "greedy_env_steps": 1}
        return Run(Path("r"), {**result, "solved": solved})

    runs = {1: run(10.0, SOLVED), 2: run(30.0, SOLVED), 5: run(None, BUDGET)}
    head, *rows, median = seeds_table(runs).splitlines()
    assert head.split("   ")[0] == "seed"
    assert [row.split()[:2] for row in rows] == [["1", "solved"], ["2", "solved"], ["5", "exit"]]
    assert "exit code 3" in rows[2]
    assert "2 of 3" in median
    assert "20.0 s (10.0 s to 30.0 s)" in median
