"""Agents that act for unrolls fetch parameters once for each, unless a setting says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.add_ons import needs

OWN = """
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.ppo import PPO

Mine = PPO.with_updates("Mine")
Own = PPO.with_updates("Own", session_config={"agent": {"fetch_parameter_mode": "step:3"}})
"""
MODE, SECONDS = (
    "session_config.agent.fetch_parameter_mode",
    "session_config.agent.fetch_interval_seconds",
)
FLUSH = "session_config.sender.flush_iteration"
# Algorithm, settings, what comes of them.
CHOSEN: list[Any] = [
    ("ppo", {}, ("step:100", 0.0)),
    ("ppo", {FLUSH: 8}, ("step:8", 0.0)),
    ("impala", {FLUSH: 16}, ("step:16", 0.0)),
    pytest.param("a3c", {FLUSH: 8}, ("step:5", 0.0), marks=needs("gradients")),
    ("{file}:Mine", {FLUSH: 8}, ("step:8", 0.0)),
    # Values of the algorithm's author, and of the user, stay.
    ("{file}:Own", {FLUSH: 8}, ("step:3", 0.0)),
    ("ppo", {FLUSH: 8, MODE: "episode"}, ("episode", 0.0)),
    ("ppo", {FLUSH: 8, SECONDS: 0.1}, ("step:8", 0.1)),
    # Rows that are drawn again need no such thing.
    ("dqn", {FLUSH: 8}, ("episode", 0.1)),
    ("sac", {FLUSH: 8}, ("step:4", 0.02)),
]


@pytest.mark.parametrize(("algorithm", "settings", "chosen"), CHOSEN)
def test_the_schedule_follows_the_unrolls(
    tmp_path: Path, algorithm: str, settings: dict[str, Any], chosen: tuple[str, float]
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    env = "gym:Pendulum-v1" if algorithm == "sac" else "toy:chain"
    user = read_experiment(None, settings, algorithm=algorithm.format(file=file), env_name=env)
    agent = resolve(user).session_config.agent
    assert (agent.fetch_parameter_mode, agent.fetch_interval_seconds) == chosen


def test_of_several_policies_the_shortest_unroll_decides() -> None:
    names = {name: {"algorithm": name} for name in ("dqn", "impala", "ppo")}
    settings = {
        "policies": names,
        "env_config.policy_mapping": {"*": [*names]},
        FLUSH: 24,
    }
    user = read_experiment(None, settings, algorithm="dqn", env_name="toy:multi_cartpole")
    agent = resolve(user).session_config.agent
    assert (agent.fetch_parameter_mode, agent.fetch_interval_seconds) == ("step:24", 0.0)
