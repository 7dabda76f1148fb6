"""The policy of a run with several agents: shown, evaluated, loaded and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from main.cli import main
from session.errors import ConfigError, UsageError
from surreal_like import (
    RolloutWorker,
    WorkerSet,
    load_policy,
    make_policy,
    make_vector_env,
    train,
)
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.analysis.play import play
from surreal_like.env.registry import SeveralAgents
from tests.add_ons import needs
from tests.addons.video.reading_video import read_video

pytestmark = pytest.mark.usefixtures("quick")

SMALL: dict[str, Any] = {
    "learner_config.model.hidden_sizes": [16],
    "env_config.num_envs": 4,
    "env_config.env_args": {"limit": 12},
    "session_config.launcher.snapshot": False,
    "session_config.stop": {"env_steps": 300, "eval_episodes": 2},
}


def trained(folder: Path, env: str = "toy:multi_cartpole", **settings: Any) -> Path:
    """Return the folder of a small run that has ended."""
    overrides = SMALL | {key.replace("__", "."): value for key, value in settings.items()}
    run = train(algorithm="ppo", env=env, overrides=overrides, launcher="serial", folder=folder)
    assert run.ok, run.details
    return folder


@pytest.fixture(scope="module")
def carts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("joint") / "run")


def test_a_video_shows_all_agents_in_every_joint_step(carts: Path, tmp_path: Path) -> None:
    found = play(carts, video=tmp_path / "out.mp4", episodes=2, seed=3)
    assert found["frames"] == sum(found["lengths"]) + 2
    assert found["fps"] == 50
    # Each cart earns 1 per step until its pole falls.
    for total, length in zip(found["returns"], found["lengths"], strict=True):
        assert length < total <= 2 * length
    read, _ = read_video(tmp_path / "out.mp4")
    assert (len(read), read[0].shape) == (found["frames"], (400, 300, 3))


def test_the_same_seed_plays_the_same_joint_episodes(carts: Path, tmp_path: Path) -> None:
    def returns(**options: Any) -> list[float]:
        found: list[float] = play(carts, video=tmp_path / "a.gif", **options)["returns"]
        return found

    assert returns(seed=5, episodes=2) == returns(seed=5, episodes=2)
    assert returns(deterministic=False, seed=5)


@pytest.mark.slow
@needs("pettingzoo")
def test_pettingzoos_pictures_are_shown(tmp_path: Path) -> None:
    rounds = {"max_cycles": 3}
    run = trained(tmp_path / "run", "pettingzoo:classic/rps-v2", env_config__env_args=rounds)
    assert play(run, video=tmp_path / "a.gif")["lengths"] == [3]


@pytest.mark.slow
def test_agents_without_a_picture_are_refused(tmp_path: Path) -> None:
    path = "tests.surreal_like.env.joint_samples:TwoLives"
    run = trained(tmp_path / "run", path, env_config__env_args={})
    with pytest.raises(UsageError, match="TwoLives has no pictures to show: its render modes are"):
        play(run, video=tmp_path / "a.gif")


def test_an_evaluation_is_of_the_joint_return(carts: Path) -> None:
    found = evaluate(carts, episodes=6)
    assert found["mean_length"] < found["mean_return"] <= 24
    assert found["mean_length"] <= 12
    assert found["episodes"] == 6


def test_its_policy_acts_on_observations_of_agents(carts: Path) -> None:
    policy = load_policy(carts)
    assert policy(np.zeros(4, np.float32))[0] in (0, 1)
    assert policy(np.zeros((2, 4), np.float32))[0].shape == (2,)


@pytest.mark.slow
def test_it_is_exported(carts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    assert main(["export", str(carts), "--out", str(tmp_path / "policy.onnx")]) == 0
    assert "inputs obs; outputs action" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words"), [("tictactoe_league", []), ("multi_cartpole_mixed", ["--policy", "right"])]
)
def test_one_policy_of_several_is_exported(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "policy.pt2")
    command = ["export", name, "--trained", "--format", "pt2", "--out", file]
    assert main([*command, *words]) == 0
    assert f"{file}: checkpoint best of trained:{name}\n" in capsys.readouterr().out


def test_which_of_several_policies_is_exported_has_to_be_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", "multi_cartpole_mixed", "--trained"]) == 2
    assert "several policies: name one; there are left, right" in capsys.readouterr().err


def test_what_is_for_a_single_agent_names_what_is_for_several() -> None:
    words = "toy:multi_cartpole is an environment of several agents, .*train, evaluate and play"
    with pytest.raises(SeveralAgents, match=words):
        make_vector_env({"env_name": "toy:multi_cartpole"}, num_envs=2, seed=0)
    policy = make_policy("ppo", env="toy:multi_cartpole")
    with pytest.raises(SeveralAgents, match=words):
        RolloutWorker(policy)
    with pytest.raises(ConfigError, match="of several agents, but a WorkerSet"):
        WorkerSet(policy, num_workers=1)


HINDSIGHT = {"learner_config.replay.hindsight.proportion": 0.5}
REFUSED = [
    pytest.param(
        {"env_config.vector": "process"},
        "session_config.agent.num higher",
        marks=needs("workers"),
    ),
    ({"env_config.frame_stack": 2}, "supersuit.frame_stack_v2"),
    ({"env_config.action_repeat": 2}, "supersuit.frame_skip_v0"),
    ({"env_config.obs_keys": ["observation"]}, "a wrapper of PettingZoo can leave parts out"),
    ({"env_config.metric_keys": ["lives"]}, "metric_keys is .*: leave it out"),
    ({"session_config.gateway.num": 1}, "set session_config.gateway.num to 0"),
    (HINDSIGHT, "has no method compute_reward.*name a function package.module:function"),
]


@pytest.mark.parametrize(("settings", "remedy"), REFUSED, ids=lambda value: next(iter(value)))
def test_a_setting_for_a_single_agent_is_refused_with_its_remedy(
    settings: dict[str, Any], remedy: str
) -> None:
    env = "tests.surreal_like.env.joint_samples:Goals"
    words = [f"{key}={value}" for key, value in settings.items()]
    with pytest.raises(ConfigError, match=remedy):
        make_policy("dqn", env=env, overrides=words)
