"""The columns of rows are recorded before the start, exactly as agents then send them."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.addons import add_ons
from session.folder import RunFolder
from surreal_like import RolloutWorker, make_policy
from surreal_like.data.columns import manifest_of, parse_columns
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.run.resume import check_same

OWN = """
from dataclasses import replace
import numpy as np
from surreal_like import Env, VectorEnv
from surreal_like.algorithm.ppo import PPO

class Told(Env):
    obs_spec = {
        "near": {"type": "float32", "dim": [2]},
        "action_mask": {"type": "int8", "dim": [3]},
    }
    action_spec = {"type": "discrete", "dim": [3]}
    info = {"whole": 3, "real": 0.5, "small": np.float32(1), "flag": True, "many": np.ones((2, 2))}

    def reset(self):
        mask = np.array([1, 0, 1], np.int8)
        return {"near": np.zeros(2, np.float32), "action_mask": mask}, self.info

    def step(self, action):
        return self.reset()[0], 1.0, False, self.rng.random() < 0.1, self.info

class Many(VectorEnv):
    obs_spec = {"type": "float32", "dim": [2]}
    action_spec = {"type": "discrete", "dim": [3]}

    def __init__(self, num_envs=1):
        self.num_envs = num_envs

    def reset(self):
        n = self.num_envs
        info = {"real": np.full(n, 0.5), "many": np.ones((n, 2), "i4")}
        return np.zeros((n, 2), np.float32), info

    def step(self, actions):
        obs, info = self.reset()
        no = np.zeros(self.num_envs, bool)
        return obs, np.ones(self.num_envs, np.float32), no, no, info

def extra(agent, obs):
    return {"far": np.zeros((len(agent.streams), 2), np.uint8)}

def postprocess(agent, chunk):
    return replace(chunk, columns={**chunk.columns, "extras/seen": chunk.columns["obs/near"] > 0})

Mine = PPO.with_updates("Mine", extra_action_fn=extra, postprocess_fn=postprocess)
"""
KEYS = "env_config.info_keys=[whole, real, small, flag, many, absent]"
# Algorithm, environment, settings.
SENT: list[tuple[str, str, list[str]]] = [
    ("dqn", "toy:chain", []),
    (
        "dqn",
        "toy:chain",
        ["learner_config.replay={type: PrioritizedReplay, priority: {initial: acting}}"],
    ),
    ("dqn", "gym:CartPole-v1", ["env_config.frame_stack=3"]),
    ("sac", "gym:Pendulum-v1", []),
    ("td3", "gym:Pendulum-v1", []),
    ("ppo", "gym:Pendulum-v1", []),
    ("ppo", "toy:recall", ["learner_config.model.memory=gru", "env_config.frame_stack=2"]),
    ("impala", "gym:CartPole-v1", ["env_config.vector=sync"]),
    ("dqn", "{file}:Told", [KEYS]),
    ("dqn", "{file}:Many", [KEYS]),
    ("{file}:Mine", "{file}:Told", [KEYS]),
]
if "r2d2" in add_ons():
    SENT.append(("r2d2", "toy:recall", []))


@pytest.mark.parametrize(("algorithm", "env", "settings"), SENT)
def test_they_are_those_that_agents_send(
    tmp_path: Path, algorithm: str, env: str, settings: list[str]
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    policy = make_policy(algorithm.format(file=file), env=env.format(file=file), overrides=settings)
    recorded = parse_columns(policy.config.learner_config.replay.columns)
    with RolloutWorker(policy, num_envs=2, rollout_fragment_length=4) as worker:
        worker._obs, _ = worker._env.reset()
        while not worker._recorder.chunks:
            worker._step()
        sent = policy.postprocess(worker._recorder.chunks[0])
    assert recorded == manifest_of(sent.columns, axes=2)
    assert ("extras/absent" in recorded) == (KEYS in settings)


def test_each_policy_has_its_own() -> None:
    config = resolve(read_experiment("multi_cartpole_mixed"))
    for name, policy in config.policies.items():
        columns = policy.learner_config.replay.columns
        logits = {"extras/logits"} if policy.algorithm == "ppo" else set()
        assert {"obs", "action", *logits} <= {each.partition("/obs")[0] for each in columns}, name


def test_they_are_no_setting(tmp_path: Path) -> None:
    config = resolve(read_experiment(None, algorithm="dqn", env_name="toy:chain"))
    before = config.copy()
    before.learner_config.replay.columns = {}
    assert before.fingerprint() == config.fingerprint() == config.recorded["fingerprint"]
    assert check_same(before, config, RunFolder(tmp_path)) == {}
    # A user who gives some, as those of an earlier run, gets those of the agent.
    user = read_experiment(None, algorithm="dqn", env_name="toy:chain")
    user.learner_config.replay = {"columns": {"extras/more": {"type": "int8", "dim": []}}}
    again = resolve(user)
    assert again.learner_config.replay.columns == config.learner_config.replay.columns
    assert "changed" not in again.recorded


def test_they_are_known_without_the_environment_but_for_its_info(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    user = read_experiment(None, [KEYS], algorithm="dqn", env_name=f"{file}:Told")
    known = resolve(user)
    assert resolve(user, known=known).learner_config.replay.columns["extras/many"].dim == [2, 2]
    known.learner_config.replay.columns = {}
    assert resolve(user, known=known).learner_config.replay.columns == {}
