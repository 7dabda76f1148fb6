"""Names as people from other libraries type them, and near misses: one line says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal_like.algorithm.catalog import known_elsewhere, list_algorithms
from tests.main.conftest import Command
from tests.main.test_wrong_inputs import assert_one_line

CARTPOLE = ("train", "--env", "gym:CartPole-v1", "--algorithm")
DQN = (*CARTPOLE, "dqn")
OWN = """
import gymnasium
import numpy as np
from surreal_like import Env

class Free(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    def reset(self, seed=None, options=None): return np.zeros(2, np.float32), {}
    def step(self, action): return np.zeros(2, np.float32), 0.0, True, False, {}

class Coin(Env):
    pass
"""
TUNING = "experiment: small.yaml\ntune: {trials: 2, stop: {env_steps: 200}}\n"
# What is typed -> words that the line holds.
INPUTS = {
    "capitals": ((*CARTPOLE, "DQN"), "did you mean dqn?"),
    "capitals and a slip": ((*CARTPOLE, "Impalla"), "did you mean impala?"),
    "a2c": ((*CARTPOLE, "a2c"), "use a3c with learner_config.gradients_at=learner"),
    "A2C": ((*CARTPOLE, "A2C"), "use a3c with "),
    "rainbow": ((*CARTPOLE, "rainbow"), "use dqn with the settings of configs/cartpole_rainbow"),
    "ape-x": ((*CARTPOLE, "Ape-X"), "use dqn with the settings of configs/cartpole_apex"),
    "qr-dqn": ((*CARTPOLE, "qr_dqn"), "algo.distribution.kind=quantile"),
    "gymnasium's prefix": (
        ("train", "--algorithm", "dqn", "--env", "gymnasium:CartPole-v1"),
        "write gym:CartPole-v1",
    ),
    "prefix in capitals": (
        ("train", "--algorithm", "dqn", "--env", "Gym:CartPole-v1"),
        "write gym:CartPole-v1",
    ),
    "prefix alone": (("train", "--algorithm", "dqn", "--env", "gym:"), ", gym:NAME"),
    "option": (("train", "--algoritm", "dqn"), "did you mean --algorithm?"),
    "option with its value": (("train", "--algoritm=dqn"), "did you mean --algorithm?"),
    "option of another command": (("status", "--foldr", "x"), "see surreal-like status --help"),
    "option of a policy": (("evaluate", "r", "--episode", "3"), "did you mean --episodes?"),
    "replay by a slip": (
        (*DQN, "learner_config.replay.type=PriorizedReplay"),
        "did you mean PrioritizedReplay?",
    ),
    "replay in small letters": (
        (*DQN, "learner_config.replay.type=fifo_replay"),
        "did you mean FIFOReplay?",
    ),
    "actions without bounds": (
        ("train", "--algorithm", "dqn", "--env", "own.py:Free"),
        "impala or ppo",
    ),
    "a tuning": (
        ("train", "t.yaml"),
        "t.yaml is a tuning: surreal-like tune t.yaml",
    ),
    "a tuning to launch": (("launch", "t.yaml"), "t.yaml is a tuning: surreal-like tune t.yaml"),
    "a tuning to check": (("check", "t.yaml"), "t.yaml is a tuning: surreal-like tune t.yaml"),
    "a folder that is not there": (
        ("plan", "small.yaml", "session_config.import_path=[nowhere]"),
        "session_config.import_path: there is no folder nowhere",
    ),
    "an environment in main.py": (
        ("train", "--algorithm", "dqn", "--env", "main:Coin"),
        "name it main.py:NAME or rename main.py",
    ),
    "a class that the file lacks": (
        ("train", "--algorithm", "dqn", "--env", "own.py:Cion"),
        "did you mean Coin?",
    ),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", INPUTS)
def test_one_line_says_what_to_write(name: str, command: Command, tmp_path: Path) -> None:
    for file in ("own.py", "main.py"):
        (tmp_path / file).write_text(OWN)
    (tmp_path / "t.yaml").write_text(TUNING)
    words, remedy = INPUTS[name]
    said = command(*words)
    assert_one_line(said)
    assert remedy in said.err, said.err
    assert not (tmp_path / "runs").exists()


def test_names_of_elsewhere_are_none_of_ours() -> None:
    assert [name for name in list_algorithms() if known_elsewhere(name)] == []
    assert known_elsewhere("Double-DQN") == known_elsewhere("double_dqn") != ""
    assert known_elsewhere("cem") == ""
