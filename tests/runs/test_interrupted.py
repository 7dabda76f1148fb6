"""A run that is interrupted or killed leaves nothing, and goes on where it was."""

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from session.config import Config
from session.errors import START_AGAIN
from session.folder import RunFolder
from session.process.context import run_part
from tests.leftovers import names_folder
from tests.runs.command import CARTPOLE, Record, Train, balanced, clean, gone, wait_for
from tests.session.tensorplex.reading import scalars

# Nobody reaches this goal, and the budget is far away: such a run is there to be interrupted.
ENDLESS = "session_config.stop={eval_return: 501, env_steps: 100000000, eval_episodes: 10}"
# So slow that it is in the middle wherever the run is.
EPSILON_STEPS = 1_000_000
SLOW_EPSILON = (
    f"learner_config.algo.epsilon={{start: 1.0, end: 0.0, steps: {EPSILON_STEPS}}}",
    "session_config.tensorplex.update_schedule=0.1",
)
COUNTERS = ("env_steps", "episodes", "iterations", "frames", "wall_seconds")


def budget(**stop: Any) -> str:
    return f"session_config.stop={json.dumps({'eval_episodes': 10, **stop})}"


def checkpoint(folder: RunFolder) -> Path:
    """The newest one."""
    return max((folder.checkpoints / "learner").glob("[0-9]*"), key=lambda path: int(path.name))


def adam(folder: RunFolder) -> dict[str, Any]:
    """The optimiser's state in the newest checkpoint."""
    state: dict[str, Any] = torch.load(checkpoint(folder) / "optimizer.pt", weights_only=True)
    moments: dict[str, Any] = state["saveables"]["optimizer"]["adam"]
    return moments


def nothing_left(folder: RunFolder) -> bool:
    """No socket, no lock, no process that names the folder."""
    for process in psutil.process_iter(["cmdline"]):
        if names_folder(" ".join(process.info["cmdline"] or []), str(folder)):
            return False
    return not folder.sockets.exists() and not folder.in_use


def end_all(family: list[psutil.Process], train: Train) -> None:
    """Waits until none is left, of processes and of what they had."""
    assert train.wait() == 130, train.words
    gone(family, seconds=5.0)
    assert nothing_left(train.folder)
    assert "Traceback" not in train.words


def interrupt(train: Train) -> None:
    """Ctrl-C, which a terminal gives to all of its foreground; then nobody may be left."""
    family = train.family()
    os.killpg(train.pid, signal.SIGINT)
    end_all(family, train)


def assert_goes_on(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, Any]:
    """No counter falls where one part of a run ends and the next begins; the next one's start."""
    last, first = before[-1], after[len(before)]
    for counter in COUNTERS:
        assert first[counter] >= last[counter], counter
    assert first["run_id"] == last["run_id"]
    return first


def parts(folder: RunFolder) -> int:
    """How many parts a run has by now; nobody's seed is that of an earlier part."""
    return run_part(Config.load_file(folder.config))


@pytest.mark.slow
def test_ctrl_c_then_resume(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, ENDLESS, *SLOW_EPSILON) as train:
        train.steps(2000)
        train.until(lambda: train.line["best_eval"])
        interrupt(train)
    before, ended = train.progress, train.result
    assert ended["status"] == "interrupted"
    assert clean(ended)
    saved = int(checkpoint(train.folder).name)
    assert adam(train.folder)["steps"] == saved == ended["iteration"] > 0

    steps = before[-1]["env_steps"] + 2000
    with Train(run_folder, "--resume", budget(env_steps=steps)) as again:
        assert again.wait() == 0, again.words
    result = again.result
    first = assert_goes_on(before, again.progress)
    assert first["iteration"] == saved
    assert first["best_eval"] == before[-1]["best_eval"] == ended["best_eval"]
    assert result["best_eval"]["mean_return"] >= ended["best_eval"]["mean_return"]
    # Neither the optimiser nor the schedule of exploration began anew.
    assert adam(again.folder)["steps"] == result["iteration"] == result["iterations"] > saved
    assert result["repeated_iterations"] == 0
    assert parts(train.folder) == 2
    curve = scalars(run_folder / "tensorboard", "agent/epsilon:agent-0")
    assert curve[-1][1] > before[-1]["env_steps"]
    for _, step, epsilon in curve:
        assert epsilon == pytest.approx(1.0 - step / EPSILON_STEPS, abs=1e-6)
    assert clean(result)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_larger_budget_goes_on_until_the_goal(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, budget(eval_return=501, env_steps=3000)) as train:
        assert train.wait() == 3, train.words
    before = train.progress
    assert train.result["goal_met"] is False
    assert train.result["status"] == "stopped"
    assert clean(train.result)
    # On a busy machine agents are far beyond the budget when it is seen to be used up.
    more = train.result["env_steps"] + 3000
    with Train(run_folder, "--resume", budget(eval_return=501, env_steps=more)) as again:
        assert again.wait() == 3, again.words
    assert_goes_on(before, again.progress)
    assert again.result["env_steps"] >= more
    # What is already used up is no budget: nothing is started.
    with Train(run_folder, "--resume", budget(eval_return=501, env_steps=more)) as used:
        assert used.wait() == 2, used.words
    assert f"session_config.stop.env_steps is {more}" in used.words
    with Train(run_folder, "--resume", budget(eval_return=100, env_steps=400000)) as solved:
        assert solved.wait(240) == 0, solved.words
    assert solved.result["goal_met"] is True
    assert parts(train.folder) == 3
    assert clean(solved.result)


@pytest.mark.slow
def test_kill_9_of_the_command(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, ENDLESS, "session_config.checkpoint.period=50") as train:
        train.steps(2000)
        train.until(lambda: train.events_of("checkpoint"))
        # One that hangs does not notice that the command has gone.
        os.kill(train.running_beat("agent-0").pid, signal.SIGSTOP)
        family = train.family()
        train.signal(signal.SIGKILL)
        train.wait()
        gone(family, seconds=5.0)
        assert nothing_left(train.folder)
    before = train.progress
    steps = before[-1]["env_steps"] + 1000
    # All of it at once, at any moment of its start.
    for seconds in (0.2, 0.4, 0.7, 1.1):
        with Train(run_folder, "--resume", budget(env_steps=steps)) as killed:
            wait_for(seconds)
            every = killed.family()
            for process in every:
                process.kill()
            gone(every, seconds=5.0)
    # Nobody is left who could remove it.
    for folder in Path(tempfile.gettempdir()).glob("sl-resolve-*"):
        shutil.rmtree(folder)
    with Train(run_folder, "--resume", budget(env_steps=steps)) as again:
        assert again.wait() == 0, again.words
    assert_goes_on(before, again.progress)
    assert again.result["status"] == "stopped"
    assert balanced(again.result), again.result


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_twice_ends_at_once(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, ENDLESS) as train:
        train.steps(1000)
        family = train.family()
        train.signal(signal.SIGINT)
        train.until(lambda: "Ctrl-C again" in train.words)
        train.signal(signal.SIGINT)
        assert train.wait(20) == 130, train.words
        gone(family, seconds=5.0)
        assert nothing_left(train.folder)
    assert train.result["status"] == "interrupted"
    assert "Traceback" not in train.words


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_while_it_starts(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, ENDLESS) as train:
        train.until(lambda: train.folder.in_use)
        interrupt(train)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_sigterm_to_every_process(run_folder: Path, record_property: Record) -> None:
    """As when a node is emptied: each process gets it, and none waits for what another has sent."""
    with Train(run_folder, CARTPOLE, ENDLESS) as train:
        train.steps(2000)
        family = train.family()
        for process in family:
            process.send_signal(signal.SIGTERM)
        end_all(family, train)
    codes = {name: part["exit_code"] for name, part in train.result["components"].items()}
    assert set(codes.values()) <= {0, START_AGAIN}
    assert int(checkpoint(train.folder).name) == train.result["iteration"] > 0
    assert balanced(train.result)
    rows = train.result["experience"]
    record_property("seen", f"saved; {rows['pushed']} rows pushed, {rows['unacked']} given up")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_of_a_serial_run(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, ENDLESS, "--on", "serial") as train:
        train.steps(1000)
        interrupt(train)
    before = train.progress
    assert clean(train.result)
    steps = before[-1]["env_steps"] + 1000
    with Train(run_folder, "--resume", "--on", "serial", budget(env_steps=steps)) as again:
        assert again.wait() == 0, again.words
    assert_goes_on(before, again.progress)
    assert clean(again.result)
