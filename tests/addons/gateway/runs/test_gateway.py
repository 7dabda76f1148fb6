"""Clients of a gateway in processes of their own drive whole runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from main.addons.gateway import client
from session.launchers.launcher import free_ports
from tests.runs.command import CARTPOLE, ROOT, Process, Train, balanced, clean

PAGE = (ROOT / "docs" / "gateway.md").read_text()
ADDRESS = "127.0.0.1:7100"
REMOTE = str(ROOT / "configs" / "cartpole_remote.yaml")


def quickstart() -> str:
    """The program of the page, as it stands there."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert ADDRESS in block
    return str(block)


@contextmanager
def clients(number: int, port: int, folder: Path) -> Iterator[list[Process]]:
    """Some processes, each of which plays CartPole for the gateway."""
    code = quickstart().replace(ADDRESS, f"127.0.0.1:{port}")
    with ExitStack() as stack:
        argv = [sys.executable, "-c", code]
        yield [
            stack.enter_context(Process(argv, folder / f"client-{index}.txt"))
            for index in range(number)
        ]


def gateway(*words: str) -> tuple[int, tuple[str, ...]]:
    """A free port, and the settings of a run whose only rows come through it."""
    (port,) = free_ports(["gateway"], "127.0.0.1").values()
    numbers = ("session_config.agent.num=0", "session_config.gateway.num=1")
    return port, (*numbers, f"session_config.gateway.port={port}", *words)


def said(all_of: list[Process]) -> str:
    """What the clients said, but that they wait for a gateway which does not listen yet."""
    lines = "\n".join(each.words for each in all_of).splitlines()
    return "\n".join(line for line in lines if "; trying again for " not in line)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_cartpole_is_solved_by_clients_alone(run_folder: Path) -> None:
    port, words = gateway()
    with (
        Train(run_folder, CARTPOLE, "--quiet", *words) as train,
        clients(4, port, run_folder.parent) as players,
    ):
        assert train.wait(200) == 0, train.words
        assert [each.wait(20) for each in players] == [0] * 4, said(players)
        assert said(players).strip() == ""
    assert train.result["goal_met"] is True
    assert clean(train.result)
    names = {event["component"] for event in train.events_of("client_joined")}
    assert names == {"gateway-0"}


@pytest.mark.slow
@pytest.mark.node
@pytest.mark.gxx
@pytest.mark.timeout(300)
def test_clients_in_three_languages_solve_it_together(run_folder: Path) -> None:
    folder = run_folder.parent / "examples"
    for language in ("python", "javascript", "cpp"):
        client.run(["--copy", language, str(folder)])
    compiled = [str(folder / "cartpole.cpp"), "-o", str(folder / "cartpole")]
    subprocess.run(["g++", "-std=c++17", "-O2", *compiled], check=True)
    port, words = gateway()
    address = f"127.0.0.1:{port}"
    examples = [["node", str(folder / "cartpole.js"), address], [str(folder / "cartpole"), address]]
    with (
        Train(run_folder, CARTPOLE, "--quiet", *words) as train,
        clients(4, port, run_folder.parent) as players,
        ExitStack() as stack,
    ):
        players += [
            stack.enter_context(Process(argv, folder / f"player-{name}-{index}.txt"))
            for name, argv in enumerate(examples)
            for index in range(4)
        ]
        # The table of `surreal-like clients`.
        train.until(lambda: len(sessions(run_folder)) == 12)
        assert train.wait(200) == 0, train.words
        assert [each.wait(20) for each in players] == [0] * 12, said(players)
    assert train.result["goal_met"] is True
    assert clean(train.result)


def sessions(run_folder: Path) -> list[Any]:
    """The sessions of the only gateway, as it has written them last."""
    path = run_folder / "gateway" / "gateway-0.json"
    return list(json.loads(path.read_text())["sessions"]) if path.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_clients_and_a_gateway_that_are_killed_hurt_no_session(run_folder: Path) -> None:
    stop = "session_config.stop={metric: return/train, above: 60, seconds: 120}"
    # The goal is not reached before all have come back: a run that is gone says no goodbye.
    port, words = gateway(stop, "learner_config.algo.epsilon={start: 1.0, end: 0.05, steps: 15000}")
    with (
        Train(run_folder, REMOTE, "--quiet", *words) as train,
        clients(5, port, run_folder.parent) as players,
    ):
        train.steps(1500)
        players[0].end()
        train.kill("gateway-0")
        before = train.line["env_steps"]
        train.until(lambda: train.line["env_steps"] > before + 500)
        players[1].end()
        assert train.wait(150) == 0, train.words
        assert [each.wait(20) for each in players[2:]] == [0] * 3, said(players)
    result: dict[str, Any] = train.result
    assert result["goal_met"] is True
    assert balanced(result)
    assert result["components"]["gateway-0"]["restarts"] == 1


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_run_without_evaluators_reaches_an_eval_return(run_folder: Path) -> None:
    stop = "session_config.stop={eval_return: 60, eval_episodes: 8, seconds: 150}"
    port, words = gateway(stop, "session_config.evaluator.interval_seconds=0.1")
    words = tuple(word for word in words if "agent.num" not in word)
    argv = ["-m", "main.cli", "client", f"127.0.0.1:{port}", "--env", "gym:CartPole-v1"]
    evaluate = [sys.executable, "-P", *argv, "--num", "2", "--mode", "evaluate"]
    with (
        Train(run_folder, REMOTE, "--quiet", *words) as train,
        clients(3, port, run_folder.parent) as players,
    ):
        # Only judges reach the goal: before that, a run over in two seconds would leave a player
        # behind that is still starting.
        train.until(lambda: len(train.events_of("client_joined")) == len(players))
        with Process(evaluate, run_folder.parent / "evaluating.txt") as judges:
            assert train.wait(200) == 0, train.words
            assert [each.wait(20) for each in (*players, judges)] == [0] * 4, judges.words
    result = train.result
    assert result["goal_met"] is True
    assert len(result["eval"]["confirmed"]) == 2
    assert clean(result)
    assert (run_folder / "checkpoints" / "best").exists()
