"""Whole runs of ``gateway.py``: CartPole by DQN, with clients and with agents of the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from compare import Found, Group, Line, Side, measure
from gateway_servers import ROOT, free_port
from setting import Given
from whole import result_of

# Rounds are seeds.
ROUNDS = 3
PROCESSES, SESSIONS = 2, 4
CONFIG = "cartpole_dqn.yaml"
PLAYER = """
import sys, threading, gymnasium
from surreal_like.addons.gateway.clients.surreal_client import run
threads = [
    threading.Thread(target=run, args=(gymnasium.make("CartPole-v1"), sys.argv[1]))
    for _ in range(int(sys.argv[2]))
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def one(given: Given, name: str, seed: int, words: list[str]) -> dict[str, Any]:
    """Trains until the goal; returns the result."""
    config = str(ROOT / "configs" / CONFIG)
    return result_of(config, *words, seed=seed, folder=given.folder / f"{name}-{seed}")


def by_agents(given: Given, seed: int) -> dict[str, Any]:
    """A run with as many agents, of as many environments, as there are clients."""
    words = [f"session_config.agent.num={PROCESSES}", f"env_config.num_envs={SESSIONS}"]
    return one(given, "agents", seed, words)


def by_clients(given: Given, seed: int) -> dict[str, Any]:
    """The same run, whose only experience comes from clients."""
    port = free_port()
    words = [f"session_config.gateway.port={port}", "session_config.gateway.num=1"]
    command = [sys.executable, "-c", PLAYER, f"127.0.0.1:{port}", str(SESSIONS)]
    players = [subprocess.Popen(command) for _ in range(PROCESSES)]
    try:
        return one(given, "clients", seed, [*words, "session_config.agent.num=0"])
    finally:
        for player in players:
            player.kill()
            player.wait()


def runs(given: Given) -> list[Found]:
    """Measures environment steps and seconds until the goal is reached."""

    def side(key: str, label: str, did: str, run: Callable[[Given, int], dict[str, Any]]) -> Side:
        seeds = count(1)

        def numbers() -> dict[str, float]:
            result = run(given, next(seeds))
            solved = result["solved"]
            # A run that did not reach its goal counts with its budget.
            steps, seconds = solved["greedy_env_steps"], solved["greedy_seconds"]
            return {
                "steps": steps or result["env_steps"],
                "seconds": seconds or result["wall_seconds"],
            }

        return Side(key, label, did, numbers)

    agents = f"{PROCESSES} agents of {SESSIONS} environments"
    clients = f"{PROCESSES} processes of {SESSIONS} Python clients"
    sides = [
        side("clients", "surreal_like", clients, by_clients),
        side("agents", "agents of the run", agents, by_agents),
    ]
    lines = [
        Line("environment steps", "clients steps", ("agents steps",), "1.25 x, aim 1 x"),
        Line("seconds", "clients seconds", ("agents seconds",), "2 x, aim 1.5 x"),
    ]
    about = f"configs/{CONFIG}, until an evaluation has 475. {clients}, beside {agents}."
    found = measure(Group("Runs", "", "less", about, sides, lines), min(ROUNDS, given.rounds))
    return [{**found, "name": "CartPole by DQN", "unit": "steps, and seconds"}]
