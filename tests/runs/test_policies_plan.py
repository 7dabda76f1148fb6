"""One plan over several policies in whole runs: the same bits as none, goals, kills and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs.command import ROOT, Train, balanced
from tests.runs.test_policies import CARTS, MIXED, POLICIES, accounted

PLANS = """
from surreal_like.dataflow import concurrently


def written_out(learners):
    flows = [learner.execution_plan() for learner in learners.values()]
    return concurrently(flows, mode="each")


def failing(learners):
    calls = []

    def fail_once(trained):
        calls.append(trained.batch.policy)
        if len(calls) == 3:
            raise RuntimeError("a bad row")
        return trained

    left, right = (learner.execution_plan() for learner in learners.values())
    return concurrently([left, right.for_each(fail_once)], mode="async")
"""


def documented() -> str:
    """Return the file of plans that docs/dataflow.md shows."""
    text = (ROOT / "docs" / "dataflow.md").read_text()
    return text.split("<!-- file: two_policies.py -->\n```python\n")[1].split("```")[0]


def parameters(train: Train, policy: str) -> bytes:
    every = (train.folder.checkpoints / policy).glob("[0-9]*")
    newest = max(every, key=lambda path: int(path.name))
    return (newest / "params.safetensors").read_bytes()


@pytest.mark.slow
def test_the_default_written_out_learns_the_same(tmp_path: Path) -> None:
    (tmp_path / "plans.py").write_text(PLANS)
    found = []
    for name, words in (("a", ()), ("b", (f"policies_plan={tmp_path}/plans.py:written_out",))):
        stop = "session_config.stop={iterations: 150, eval_episodes: 2}"
        with Train(tmp_path / name, CARTS, "--on", "serial", "--quiet", stop, *words) as train:
            assert train.wait(300) == 0, train.words
        each = [train.result["policies"][policy]["iteration"] for policy in POLICIES]
        assert min(each) >= 60
        found.append([each, *(parameters(train, policy) for policy in POLICIES)])
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_ppo_and_dqn_meet_their_goals_by_one_plan(run_folder: Path, seed: int) -> None:
    plans = run_folder.with_name("two_policies.py")
    plans.write_text(documented())
    words = (f"policies_plan={plans}:two_trainers", f"session_config.seed={seed}")
    with Train(run_folder, MIXED, *words) as train:
        train.until(lambda: train.line.get("iterations"))
        for _ in range(2 * (seed == 101)):
            train.kill("learner")
            train.learn(100)
        assert train.wait(300) == 0, train.words
    result = train.result
    assert result["goal_met"]
    assert accounted(result)
    assert balanced(result)
    assert result["components"]["learner"]["restarts"] == 2 * (seed == 101)


@pytest.mark.slow
def test_a_batch_that_a_plan_fails_on_is_that_of_its_policy(tmp_path: Path) -> None:
    (tmp_path / "plans.py").write_text(PLANS)
    stop = "session_config.stop={env_steps: 4000, eval_episodes: 2}"
    words = ("--on", "serial", "--quiet", stop, f"policies_plan={tmp_path}/plans.py:failing")
    less = "policies.right.learner_config.replay.min_size=500"
    with Train(tmp_path / "run", MIXED, *words, less) as train:
        assert train.wait(300) == 0, train.words
    bad = json.loads((train.folder.quarantine / "right" / "1.json").read_text())
    assert bad["error"].startswith("RuntimeError('a bad row'), in failing")
    assert bad["replay"].startswith("replay-right-0/")
    assert not (train.folder.quarantine / "left").exists()
    assert accounted(train.result)


@pytest.mark.slow
def test_a_resumed_run_has_the_plan_that_it_began_with(tmp_path: Path) -> None:
    plans = tmp_path / "plans.py"
    plans.write_text(PLANS)
    stop = "session_config.stop={iterations: 20, eval_episodes: 2}"
    words = ("--on", "serial", "--quiet")
    plan = f"policies_plan={plans}:written_out"
    with Train(tmp_path / "run", CARTS, *words, stop, plan) as train:
        assert train.wait(300) == 0, train.words
    plans.unlink()
    more = "session_config.stop.iterations=30"
    with Train(tmp_path / "run", "--resume", more, *words) as train:
        assert train.wait(300) == 0, train.words
    # A pull may make an update of each policy.
    assert train.result["iterations"] in (30, 31)
    assert accounted(train.result)
