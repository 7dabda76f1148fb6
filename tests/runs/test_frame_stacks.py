"""Runs whose agents see stacks of frames: in one thread, and as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config import Config
from surreal_like import FrameStack, load_policy, train
from surreal_like.addons.analysis.evaluate import evaluate
from tests.add_ons import needs
from tests.runs.command import ROOT, Train, clean
from tests.runs.motion import Motion

# Rows are thrown away all the time: each lasts for a tenth of the run.
MOTION = {
    "learner_config.algo": {
        "gamma": 0.0,
        "n_step": 1,
        "learning_rate": 3e-3,
        "epsilon": {"start": 1.0, "end": 0.1, "steps": 2000},
    },
    "learner_config.model.hidden_sizes": [32],
    "learner_config.replay": {
        "capacity": 600,
        "batch_size": 64,
        "min_size": 200,
        "samples_per_insert": 16.0,
    },
    "env_config.num_envs": 4,
    "env_config.frame_stack": 2,
    "session_config.import_path": [str(ROOT)],
    "session_config.sender.flush_iteration": 8,
    "session_config.stop": {"env_steps": 6000, "eval_episodes": 20},
}


# The same of unrolls, which begin with the frames before them.
ON_POLICY = {
    "learner_config.algo.gamma": 0.3,
    "learner_config.replay": {"batch_size": 32, "capacity": 1024},
    "env_config.num_envs": 32,
    "env_config.frame_stack": 2,
    "session_config.import_path": [str(ROOT)],
    "session_config.agent": {"num": 1, "fetch_parameter_mode": "step:16"},
    "session_config.sender": {"flush_iteration": 16, "max_unacked_chunks": 1},
    "session_config.stop": {"env_steps": 40_000, "eval_episodes": 20},
}


def words() -> list[str]:
    """The same as words of a command line."""
    return [f"{key}={value}".replace("'", "") for key, value in MOTION.items()]


def play(folder: Path, episodes: int = 20) -> float:
    """The mean return of a policy that is asked by hand, in stacks that are made by hand."""
    policy, env = load_policy(folder, "latest"), FrameStack(Motion(), 2)
    env.env.envs[0].seed(5)  # type: ignore[attr-defined]
    total, ended, (obs, _) = 0.0, 0, env.reset()
    while ended < episodes:
        actions, _ = policy(obs)
        obs, reward, terminated, truncated, _ = env.step(np.asarray(actions))
        total, ended = total + float(reward[0]), ended + int((terminated | truncated)[0])
    return total / episodes


@pytest.mark.slow
def test_what_one_frame_does_not_show_is_learned_from_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run: Any = train(
        algorithm="dqn",
        env="tests.runs.motion:Motion",
        overrides=MOTION,
        launcher="serial",
        folder="r",
    )
    assert Config.load_file(str(run.folder / "config.yaml")).env_config.obs_spec.dim == [2, 1, 5]
    assert clean(run.result)
    assert evaluate(tmp_path / "r", episodes=50, checkpoint="latest")["mean_return"] > 5.2
    assert play(tmp_path / "r") > 5.0


@pytest.mark.slow
def test_it_is_learned_from_unrolls_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run: Any = train(
        algorithm="ppo",
        env="tests.runs.motion:Motion",
        overrides=ON_POLICY,
        launcher="serial",
        folder="r",
    )
    assert clean(run.result)
    assert evaluate(tmp_path / "r", episodes=50, checkpoint="latest")["mean_return"] > 5.2


@needs("workers")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_as_processes_with_prioritized_replay(run_folder: Path) -> None:
    given = [
        *("--algorithm", "dqn", "--env", "tests.runs.motion:Motion", *words()),
        "learner_config.replay.type=PrioritizedReplay",
        "env_config.vector=process",
    ]
    with Train(run_folder, *given) as run:
        assert run.wait(240) == 0, run.words
    assert run.result["best_eval"]["mean_return"] > 5.2
    assert clean(run.result)
