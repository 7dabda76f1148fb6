"""`surreal-like train` from the user's side: what it shows, how it ends, how it goes on."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.folder import RunFolder
from session.newest_checkpoint import Checkpoints
from surreal_like.run.observer import RunObserver
from surreal_like.run.request import RunRequest
from surreal_like.run.train import Run
from tests.main.conftest import CONFIG, Command
from tests.polling import DEADLINE_SECONDS, until

SERIAL = ("train", "small.yaml", "--on", "serial")


def read_json(path: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def progress(folder: str | Path) -> list[dict[str, Any]]:
    lines = RunFolder(folder).progress.read_text().splitlines()
    return [json.loads(line) for line in lines]


# -- in one thread --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_run_is_shown_in_lines_and_summed_up(command: Command) -> None:
    said = command(*SERIAL, "session_config.learner.report_seconds=0.05")
    assert said.code == 0, said.err
    first, *lines = said.out.splitlines()
    folder = re.fullmatch(r"dqn on toy:chain · seed 0 · (runs/small-\d{8}-\d{6})", first)
    assert folder is not None
    assert any(re.match(r"\d\d:\d\d counted  env steps \d+ \(", line) for line in lines)
    (done,) = (line for line in lines if line.startswith("done after "))
    assert re.match(r"done after \d\d:\d\d \(00:0\d counted\) and [\d,]+ env steps", done)
    assert f"run folder           {folder[1]}" in lines
    assert "experience           " in said.out
    assert f"surreal-like evaluate {folder[1]}" in said.out
    result = read_json(f"{folder[1]}/result.json")
    assert result["status"] == "stopped"
    assert result["goal_met"] is None
    events = map(json.loads, Path(folder[1], "events.jsonl").read_text().splitlines())
    evaluations = [event for event in events if event["event"] == "evaluation"]
    assert {"mean_return", "episodes", "env_steps", "iteration"} <= evaluations[0].keys()
    # Of the clock on the wall; those of a serial run count rounds.
    assert 0.0 < result["real_seconds"] != result["wall_seconds"]
    rows = result["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]


@pytest.mark.usefixtures("quick")
def test_quiet_says_nothing_and_json_says_the_result(command: Command) -> None:
    said = command(*SERIAL, "--quiet", "--folder", "a")
    assert (said.code, said.out, said.err) == (0, "", "")
    said = command(*SERIAL, "--json", "--folder", "b")
    assert json.loads(said.out) == read_json("b/result.json")
    assert "run folder" in said.err


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_budget_that_ends_before_the_goal_gives_3_and_a_larger_one_goes_on(
    command: Command,
) -> None:
    goal = "session_config.stop.eval_return=99"
    said = command(*SERIAL, goal, "--folder", "r", "--seed", "7")
    assert said.code == 3
    assert "goal not met" in said.out
    assert "surreal-like train --resume --folder r" in said.out
    first = read_json("r/result.json")
    assert first["goal_met"] is False

    said = command(
        *("train", "--resume", "--folder", "r", "--on", "serial"),
        *("session_config.stop.env_steps=2500", "session_config.stop.eval_return=null"),
    )
    assert said.code == 0, said.err
    assert "changed: session_config.stop.env_steps was 400, is 2500" in said.out
    second = read_json("r/result.json")
    assert second["run_id"] == first["run_id"]
    assert second["seed"] == 7
    assert second["env_steps"] >= 2500
    assert second["iterations"] > first["iterations"]
    assert second["wall_seconds"] > first["wall_seconds"]
    assert second["real_seconds"] > first["real_seconds"] > 0
    for name in ("env_steps", "iterations", "episodes", "wall_seconds"):
        values = [line[name] for line in progress("r")]
        assert values == sorted(values), name


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_resume_finds_the_newest_run_of_its_config(command: Command) -> None:
    assert command(*SERIAL, "--quiet").code == 0
    other = Path("other.yaml")
    other.write_text(CONFIG)
    assert command("train", "other.yaml", "--on", "serial", "--quiet").code == 0
    said = command(*SERIAL, "--resume", "session_config.stop.env_steps=2500")
    assert said.code == 0, said.err
    assert re.search(r"run folder +runs/small-", said.out)
    assert len(list(Path("runs").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_an_allowed_change_is_taken(command: Command) -> None:
    assert command(*SERIAL, "--quiet", "--folder", "r").code == 0
    said = command(
        *SERIAL,
        *("--resume", "--folder", "r", "--allow-change", "learner_config.algo"),
        *("learner_config.algo.learning_rate=1e-4", "session_config.stop.env_steps=2500"),
    )
    assert said.code == 0, said.err
    assert "changed: learner_config.algo.learning_rate.start was 0.001, is 0.0001" in said.out


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_checkpoint_cut_short_is_reported_and_the_one_before_is_used(command: Command) -> None:
    period = "session_config.checkpoint.period=20"
    assert command(*SERIAL, "--quiet", "--folder", "r", period).code == 0
    newest, before, *_ = Checkpoints(Path("r/checkpoints/learner")).newest_first()
    cut = newest / "params.safetensors"
    cut.write_bytes(cut.read_bytes()[:10])
    said = command(*SERIAL, "--resume", "--folder", "r", "session_config.stop.env_steps=2500")
    assert said.code == 0, said.err
    assert f"going on from the checkpoint before: checkpoint file {cut} has 10 bytes" in said.out
    result = read_json("r/result.json")
    assert result["repeated_iterations"] == int(newest.name) - int(before.name)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_several_seeds_give_a_table(command: Command) -> None:
    said = command(*SERIAL, "--seeds", "3..4", "--folder", "many", "--json")
    assert said.code == 0, said.err
    results = json.loads(said.out)
    assert {seed: result["seed"] for seed, result in results.items()} == {"3": 3, "4": 4}
    *_, head, one, two, median = said.err.splitlines()
    assert head.split()[0] == "seed"
    assert one.split()[0] == "3"
    assert two.rstrip().endswith("many/seed-4")
    assert median.startswith("median   2 of 2")


def test_ctrl_c_ends_all_seeds_and_the_first_bad_end_gives_the_exit_code(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {1: ("stopped", True), 2: ("stopped", False), 3: ("interrupted", None)}
    begun = []

    def end(request: RunRequest, watch: RunObserver) -> Run:
        seed = request.seed or 0
        begun.append(seed)
        status, goal_met = ends[seed]
        return Run(Path("r"), {"status": status, "goal_met": goal_met})

    monkeypatch.setattr("main.cli.train.run_here", end)
    assert command("train", "small.yaml", "--seeds", "1..4").code == 3
    assert begun == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_the_other_commands_show_of_a_run_that_has_ended(command: Command) -> None:
    assert command(*SERIAL, "--quiet").code == 0
    name = next(Path("runs").iterdir()).name
    said = command("status", "latest")
    assert said.out.startswith(f"dqn on toy:chain · seed 0 · runs/{name}\ndone · after 00:0")
    assert re.search(r"learner +done", said.out)
    shown = json.loads(command("status", name, "--json").out)
    assert shown["state"] == "done"
    assert shown["result"]["status"] == "stopped"
    assert shown["components"]["agent-1"]["state"] == "done"
    assert command("probe", name, "learner").code == 1
    stopped = command("stop", name)
    assert stopped.code == 2
    assert f"{name} is over (budget of 400 env_steps used)" in stopped.err
    assert "learner: ending" in command("logs", name, "--component", "learner").out
    assert command("logs", name, "--level", "critical").out == ""
    assert command("logs", name, "--follow").out == command("logs", name).out
    assert re.search(rf"{name} +done +serial +dqn +toy:chain", command("list", "runs").out)
    played = json.loads(command("evaluate", name, "--episodes", "3", "--json").out)
    assert played["episodes"] == 3
    assert "3 episodes" in command("evaluate", name, "--episodes", "3", "--stochastic").out


# -- on a terminal --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_live_table_shows_where_a_run_stands(command: Command) -> None:
    from rich.console import Console

    from main.cli.live_table import render
    from session.show.run_view import RunView

    goal = "session_config.stop={eval_return: 4, env_steps: 400, eval_episodes: 4}"
    assert command(*SERIAL, goal, "--quiet", "--folder", "r").code == 3
    view = RunView(RunFolder("r"))
    view.refresh(components={"agent-1": {"restarts": 2}})
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(render(view, 14.0))
    lines = stream.getvalue().splitlines()
    text = "\n".join(lines)
    assert "dqn on toy:chain · seed 0 · 00:14 · r" in text
    for label in ("env steps", "updates", "greedy return", "training return", "policy lag"):
        assert label in text
    assert any(line.startswith("goal") and "of 4.0 greedy return" in line for line in lines)
    assert any(line.startswith("budget") and "of 400 env steps" in line for line in lines)
    assert "● agent-1 done restarted 2x" in text
    # Nothing is cut off on the narrowest usual terminal.
    assert "…" not in text
    assert max(map(len, lines)) <= 80


def test_a_table_is_drawn_before_the_first_heartbeat(command: Command, quick: None) -> None:
    from rich.console import Console

    from main.cli.live_table import render
    from session.show.run_view import RunView

    assert command("plan", "small.yaml", "--format", "shell", "--folder", "r").code == 0
    stream = io.StringIO()
    view = RunView(RunFolder("r"))
    view.refresh()
    Console(file=stream, width=80).print(render(view, 1.0))
    assert stream.getvalue().count("waiting") == 8
    assert "env steps" not in stream.getvalue()


# -- as processes ---------------------------------------------------------------------------------

# Enough for a few seconds of training.
LONG = ("session_config.stop={env_steps: 100_000_000}",)


@contextmanager
def training(folder: Path, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """Run `surreal-like train` in a session of its own; kill it if the test fails."""
    process = subprocess.Popen(
        [sys.executable, "-m", "main.cli", "train", *argv],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def has_trained(run: Path, iterations: int = 20) -> bool:
    path = RunFolder(run).progress
    lines = path.read_text().splitlines() if path.exists() else []
    return (
        bool(lines) and lines[-1].endswith("}") and json.loads(lines[-1])["iterations"] > iterations
    )


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all processes that name a folder, or work in it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.cwd() == str(folder):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_processes_train_to_the_end_and_leave_nothing(command: Command, tmp_path: Path) -> None:
    said = command("train", "small.yaml", "--folder", "r", "session_config.stop.env_steps=3000")
    assert said.code == 0, said.err + said.out
    result = read_json("r/result.json")
    assert set(result["components"]) >= {"learner", "replay-0", "agent-1", "eval-0", "tensorplex"}
    assert {each["exit_code"] for each in result["components"].values()} == {0}
    rows = result["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]
    assert rows["unacked"] == rows["holes"] == 0
    assert "torch==" in Path("r/code/packages.txt").read_text()
    assert not processes_of(tmp_path)
    assert not RunFolder("r").sockets.exists()


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_and_the_run_can_go_on(command: Command, tmp_path: Path) -> None:
    with training(tmp_path, "small.yaml", "--folder", "r", *LONG) as process:
        until(lambda: has_trained(tmp_path / "r"))
        assert command("probe", "r", "learner").code == 0
        assert re.search(r"learner +running", command("status", "r").out)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 130, out
    assert "interrupted after" in out
    assert not processes_of(tmp_path)
    first = read_json("r/result.json")
    assert first["status"] == "interrupted"
    rows = first["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]
    assert rows["unacked"] == rows["holes"] == 0

    budget = f"session_config.stop.env_steps={first['env_steps'] + 500}"
    said = command("train", "--resume", "--folder", "r", budget)
    assert said.code == 0, said.err + said.out
    second = read_json("r/result.json")
    assert second["run_id"] == first["run_id"]
    assert second["iterations"] > first["iterations"]
    assert second["repeated_iterations"] == 0


@pytest.mark.slow
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(CONFIG)
    with training(tmp_path, "small.yaml", "--folder", "r") as process:
        until(lambda: (tmp_path / "r").exists())
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out) == (130, "")
    until(lambda: not processes_of(tmp_path), seconds=5.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml"]


@pytest.mark.slow
def test_a_killed_train_leaves_nothing_and_its_run_can_go_on(
    command: Command, tmp_path: Path
) -> None:
    with training(tmp_path, "small.yaml", "--folder", "r", *LONG) as process:
        until(lambda: has_trained(tmp_path / "r"))
        process.kill()
        until(lambda: not processes_of(tmp_path), seconds=5.0)
    run = RunFolder(tmp_path / "r")
    assert not run.in_use
    assert not run.sockets.exists()
    seconds = run.last_progress()["wall_seconds"] + 2
    said = command("train", "--resume", "--folder", "r", f"session_config.stop.seconds={seconds}")
    assert said.code == 0, said.err + said.out


@pytest.mark.slow
def test_a_run_is_stopped_from_another_terminal(command: Command, tmp_path: Path) -> None:
    with training(tmp_path, "small.yaml", "--folder", "r", "--json", *LONG) as process:
        until(lambda: has_trained(tmp_path / "r"))
        said = command("stop", "r")
        process.communicate(timeout=DEADLINE_SECONDS)
    assert said.out == "run r has ended: surreal-like stop\n"
    assert process.returncode == 130
    assert not processes_of(tmp_path)


@pytest.mark.slow
def test_the_lines_of_plan_run_without_a_launcher(command: Command, tmp_path: Path) -> None:
    words = ("plan", "small.yaml", "--format", "shell", "--folder", "r")
    lines = [line for line in command(*words).out.splitlines() if line[0] != "#"]
    started = [subprocess.Popen(line, shell=True, cwd=tmp_path) for line in lines]
    try:
        until(lambda: all(process.poll() is not None for process in started))
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * 8
    assert read_json("r/result.json")["status"] == "stopped"
