"""Several policies in one run: each learns from its own rows, and every row is accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.command import ROOT, Train, balanced, without_real_times

MIXED = str(ROOT / "configs" / "multi_cartpole_mixed.yaml")
CARTS = str(ROOT / "configs" / "multi_cartpole_ppo.yaml")
POLICIES = ("left", "right")
PARTS = ("agent-0", "replay-left-0", "replay-right-0", "learner", "ps", "eval-0")
SHORT = (
    "session_config.stop={env_steps: 4000, eval_episodes: 5}",
    "policies.left.learner_config.replay.batch_size=4",
    "policies.right.learner_config.replay.min_size=500",
    "env_config.num_envs=4",
)


def accounted(result: dict[str, Any]) -> bool:
    """Whether the rows of the policies are those of the run, and none is missing."""
    each = [result["policies"][name]["experience"] for name in POLICIES]
    whole = result["experience"]
    sums = {key: sum(one[key] for one in each) for key in each[0]}
    closed = all(one["pushed"] == one["inserted"] + one["dropped"] for one in each)
    return closed and sums == {key: whole[key] for key in sums}


def run(folder: Path, *words: str) -> Train:
    with Train(folder, MIXED, "--on", "serial", "--quiet", *SHORT, *words) as train:
        assert train.wait(300) == 0, train.words
    return train


@pytest.mark.slow
def test_two_algorithms_learn_at_once(tmp_path: Path) -> None:
    result = run(tmp_path / "run").result
    assert result["status"] == "stopped"
    assert accounted(result)
    left, right = (result["policies"][name] for name in POLICIES)
    assert left["experience"]["inserted"] > 1000
    assert right["experience"]["inserted"] > 1000
    assert left["iteration"] >= 1
    assert right["iteration"] > 100
    assert result["iterations"] == left["iteration"] + right["iteration"]
    assert right["eval"]["mean_return"] >= 5.0
    for each in (left, right):
        # An episode has one row more than steps.
        assert 0 < each["agent_steps"] < each["experience"]["inserted"]
        assert each["rates"]["updates_per_second"] > 0
    lags = [each["lag"]["max_versions"] for each in (left, right)]
    assert result["lag"]["max_versions"] == max(lags)
    # Each environment step is counted by one policy, which the two carts share.
    assert (
        4000 <= result["env_steps"] < left["experience"]["pushed"] + right["experience"]["pushed"]
    )


@pytest.mark.slow
def test_each_row_of_a_swarm_is_accounted_for(tmp_path: Path) -> None:
    file = tmp_path / "swarm.yaml"
    settings = {
        "algorithm": "ppo",
        "policies": {"left": {}, "right": {"algorithm": "dqn"}},
        "learner_config": {"replay": {"batch_size": 32}},
        "env_config": {
            "env_name": "tests.surreal_like.env.joint_samples:Swarm",
            "num_envs": 2,
            "policy_mapping": {"fly_?": "left", "fly_*": "right"},
        },
        "session_config": {"stop": {"env_steps": 300, "eval_episodes": 2}},
    }
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    words = ("--on", "serial", "--quiet", f"session_config.import_path=[{ROOT}]")
    with Train(tmp_path / "run", str(file), *words) as train:
        assert train.wait(200) == 0, train.words
    result = train.result
    assert accounted(result)
    # An episode has nine steps, after which nobody is left; agent number n lives for 1 + n // 9.
    left, right = (result["policies"][name]["experience"]["pushed"] for name in POLICIES)
    episodes = result["episodes"]
    assert 9 * episodes <= result["env_steps"] <= 9 * (episodes + 4)
    lives = [1 + number // 9 for number in range(81)]
    assert left >= episodes * sum(lives[:10])
    assert right >= episodes * sum(lives[10:])


@pytest.mark.slow
def test_checkpoints_stand_by_policy(tmp_path: Path) -> None:
    train = run(tmp_path / "run")
    for name in POLICIES:
        assert list((train.folder.checkpoints / name).glob("[0-9]*/params.safetensors"))
    assert train.line["policies"].keys() == set(POLICIES)
    assert {"left/loss", "right/loss"} & train.line["learn"].keys()


@pytest.mark.slow
def test_two_serial_runs_are_the_same(tmp_path: Path) -> None:
    first, second = (run(tmp_path / name) for name in "ab")
    results = [without_real_times(train.result) for train in (first, second)]
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_is_resumed_by_all_policies(tmp_path: Path) -> None:
    before = run(tmp_path / "run").result
    words = ("session_config.stop.env_steps=8000", "--quiet", "--resume", "--on", "serial")
    with Train(tmp_path / "run", *words) as train:
        assert train.wait(300) == 0, train.words
    after = train.result
    assert accounted(after)
    for name in POLICIES:
        assert after["policies"][name]["iteration"] > before["policies"][name]["iteration"]
        assert after["policies"][name]["version"] > before["policies"][name]["version"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_part_is_killed_once_and_the_goal_is_reached(run_folder: Path) -> None:
    goal = "session_config.stop.eval_returns={left: 150, right: 150}"
    with Train(run_folder, CARTS, goal) as train:
        train.until(lambda: train.line.get("iterations"))
        for name in PARTS:
            train.kill(name)
            train.learn(1)
        assert train.wait(300) == 0, train.words
    result = train.result
    restarts = {name: result["components"][name]["restarts"] for name in PARTS}
    assert restarts == dict.fromkeys(PARTS, 1)
    assert result["goal_met"]
    assert balanced(result)
    assert all(result["policies"][name]["experience"]["pushed"] > 0 for name in POLICIES)
