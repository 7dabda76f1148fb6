"""Algorithms of every kind learn from clients of a gateway alone."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from session.launchers.launcher import free_ports
from tests.runs.command import ROOT, Process, Train, clean

CLIENTS = 8
# Configuration, return that shows learning, and what differs from an experiment with agents.
CASES = {
    "ppo": ("cartpole_ppo", 80.0, ["env_config.num_envs=1"]),
    "impala": ("cartpole_impala", 80.0, ["env_config.num_envs=1"]),
    "pqn": ("cartpole_pqn", 80.0, ["env_config.num_envs=1"]),
    # A random policy has about -16.7.
    "sac": ("pendulum_sac", -5.0, ["env_config.num_envs=1", "env_config.env_name=toy:target"]),
    # Without its memory a policy has 1 / 3.
    "recurrent ppo": ("memory_ppo", 0.7, ["env_config.num_envs=1", "env_config.env_args={}"]),
    # One environment makes noisier gradients than the eight of the experiment.
    "a3c": (
        "cartpole_a3c",
        45.0,
        ["env_config.num_envs=1", "learner_config.algo.learning_rate.start=1e-3"],
    ),
}
ENVS = {"pendulum_sac": "toy:target", "memory_ppo": "toy:recall"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_an_algorithm_learns_from_clients_alone(case: str, run_folder: Path) -> None:
    name, goal, words = CASES[case]
    (port,) = free_ports(["gateway"], "127.0.0.1").values()
    numbers = ("agent.num=0", "evaluator.num=0", "gateway.num=1", f"gateway.port={port}")
    words = [*words, *(f"session_config.{each}" for each in numbers)]
    stop = f"session_config.stop={{metric: return/train, above: {goal}, seconds: 200}}"
    config = str(ROOT / "configs" / f"{name}.yaml")
    env = ENVS.get(name, "gym:CartPole-v1")
    play = [sys.executable, "-P", "-m", "main.cli", "client", f"127.0.0.1:{port}", "--env", env]
    with (
        Train(run_folder, config, "--quiet", *words, stop) as train,
        ExitStack() as stack,
    ):
        players = {
            name: stack.enter_context(
                Process([*play, "--name", name], run_folder.parent / f"{name}.txt")
            )
            for name in (f"player-{number}" for number in range(CLIENTS))
        }
        assert train.wait(250) == 0, train.words
        # The quickest of these runs is over before the last client has started.
        log = (run_folder / "logs" / "gateway-0.log").read_text()
        joined = [each for name, each in players.items() if f"client_joined: {name} " in log]
        assert len(joined) >= 2, log
        assert [each.wait(30) for each in joined] == [0] * len(joined), joined[0].words
    assert train.result["goal_met"] is True
    assert clean(train.result, fewer_rows=case == "a3c")
