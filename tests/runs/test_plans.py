"""Runs with a plan of a user: repeatable, counted, and continued after the learner is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surreal_like import launch
from tests.runs.by_hand import ByHand
from tests.runs.command import ROOT, Train, balanced, clean
from tests.runs.test_killed_parts import never_fall
from tests.runs.test_serial import same
from tests.surreal_like.experiment.test_plan_check import PLANS

IMPALA = str(ROOT / "configs" / "cartpole_impala.yaml")
GOAL = "session_config.stop={eval_return: 195, iterations: 100000, seconds: 200}"
# A batch has 16 streams of 32 steps.
STREAMS, STEPS = 16, 32


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "my_plan.py").write_text(PLANS)
    return f"learner_config.execution_plan={tmp_path / 'my_plan.py'}:fresh_and_again"


def operators(train: Train) -> dict[str, Any]:
    found: dict[str, Any] = train.line["plan"]["operators"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plan_of_two_branches_gives_one_run(tmp_path: Path, plan: str) -> None:
    runs = []
    for name in "ab":
        words = ("--on", "serial", "--quiet", "--seed", "4", plan)
        stop = "session_config.stop={iterations: 101, eval_episodes: 2}"
        size = f"learner_config.replay.batch_size={STREAMS}"
        with Train(tmp_path / name, IMPALA, *words, stop, size) as train:
            assert train.wait(200) == 0, train.words
        runs.append(train)
    first, second = runs
    assert same(first, second)
    assert clean(first.result)
    # Two batches until the memory has its 32 streams, then two old ones for each new one.
    fresh = 2 + 33
    assert operators(first)["rollouts"]["items"] == fresh
    counts = first.line["plan"]
    assert counts["rows_taken"] == fresh * STREAMS * STEPS
    assert counts["rows_trained"] == 101 * STREAMS * STEPS


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plan_goes_on_after_the_learner_is_killed_and_after_a_resume(
    tmp_path: Path, plan: str
) -> None:
    often = "session_config.checkpoint.period=50"
    short = "session_config.stop={iterations: 700}"
    # That of the file falls to 0 within 400,000 steps: what a run has unlearned by then would stay.
    steady = "learner_config.algo.learning_rate=5e-4"
    with Train(tmp_path / "run", IMPALA, plan, often, steady, short) as train:
        train.until(lambda: train.line.get("iterations", 0) > 60)
        train.kill("learner")
        assert train.wait(120) == 0, train.words
    assert train.result["components"]["learner"]["restarts"] == 1
    before = operators(train)
    # No goal: it may be reached before the memory has given anything.
    longer = "session_config.stop={iterations: 1000}"
    with Train(tmp_path / "run", longer, "--resume") as again:
        assert again.wait(240) == 0, again.words
    assert again.result["best_eval"]["mean_return"] >= 195
    assert balanced(again.result)
    assert never_fall(again.progress)
    after = operators(again)
    assert all(after[name]["rows"] > before[name]["rows"] > 0 for name in before)
    plans = [line["plan"] for line in again.progress]
    assert all(counts["rows_trained"] >= counts["rows_taken"] for counts in plans)
    assert plans[-1]["rows_taken"] <= again.result["experience"]["sampled"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plan_solves_cartpole_started_by_hand(run_folder: Path, plan: str) -> None:
    with ByHand(run_folder, plan, GOAL, experiment=IMPALA) as run:
        run.start()
        ends = run.wait(240)
    assert ends == dict.fromkeys(run.lines, 0)
    assert run.result["goal_met"] is True
    assert clean(run.result)
    assert run.line["plan"]["rows_trained"] > run.line["plan"]["rows_taken"]


@pytest.mark.slow
@pytest.mark.tmux
@pytest.mark.timeout(300)
def test_a_plan_solves_cartpole_in_tmux(run_folder: Path, plan: str) -> None:
    with launch(IMPALA, on="tmux", overrides=[plan, GOAL], folder=run_folder) as control:
        control.wait(240)
        assert (control.folder.read_result() or {})["goal_met"] is True
