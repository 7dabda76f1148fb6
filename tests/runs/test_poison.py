"""Runs into which finite but senseless rows come: of a guest, and of an agent of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, Process, Train, read_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# CartPole, of which some steps in the middle have observations and rewards of 3e38. The bounds of
# the spec, and `reward_range`, let them through also where a guest sends them.
MODULE = """
import os
import gymnasium
import numpy as np
from surreal_like import Env

FIRST, STEPS = int(os.environ.get("BROKEN_FROM", 0)), int(os.environ.get("BROKEN_STEPS", 0))

class Broken(Env):
    obs_spec = {"type": "float32", "dim": [4], "low": -3.2e38, "high": 3.2e38}
    action_spec = {"type": "discrete", "dim": [2]}

    def __init__(self):
        self._env = gymnasium.make("CartPole-v1")
        self._steps = 0

    def reset(self, seed=None):
        return self._env.reset(seed=seed)[0].astype(np.float32), {}

    def step(self, action):
        self._steps += 1
        obs, reward, *rest = self._env.step(int(action))
        if FIRST < self._steps <= FIRST + STEPS:
            obs, reward = np.full(4, 3e38), 3e38
        return obs.astype(np.float32), float(reward), *rest
"""
BOUNDS = "env_config.reward_range=[-3.2e38, 3.2e38]"
LIMITS = "session_config.stop={eval_return: 475, seconds: 300}"


def write_env(folder: Path) -> list[str]:
    """Returns the words of the command line that name the environment."""
    (folder / "broken_env.py").write_text(MODULE)
    named = ["env_config.env_name=broken_env:Broken", f"session_config.import_path=[{folder}]"]
    return [CARTPOLE, *named, BOUNDS]


def events_of(folder: RunFolder, kind: str) -> list[str]:
    return [str(each["detail"]) for each in read_lines(folder.events) if each["event"] == kind]


def check_rows(result: dict[str, Any], folder: RunFolder) -> dict[str, int]:
    """Every row is in one account."""
    rows: dict[str, int] = result["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]
    replay = read_lines(folder.progress)[-1]["replay"]
    fates = replay["size"] + replay["evicted"] + rows["lost"] + rows["rolled_back"]
    assert rows["inserted"] == fates
    return rows


def test_a_run_reaches_its_goal_although_a_guest_poisons_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    given = ["launch", *write_env(tmp_path), LIMITS, "--on", "local", "--host", "127.0.0.1"]
    with Process([*COMMAND, *given, "--folder", str(folder.path)], tmp_path / "launch.txt") as made:
        assert made.wait() == 0, made.words
    line = next(each for each in made.words.splitlines() if each.startswith("surreal-like join"))
    joins = [*COMMAND, *line.split()[1:], "--folder", str(tmp_path / "guest")]
    try:
        until(
            lambda: (
                read_lines(folder.progress)[-1:]
                and read_lines(folder.progress)[-1]["iterations"] > 100
            )
        )
        # 8 environments of 80 steps each.
        with Process(joins, tmp_path / "join.txt", BROKEN_FROM="20", BROKEN_STEPS="80") as guest:
            until(lambda: events_of(folder, "fenced"), what=lambda: guest.words)
            until(
                lambda: (folder.read_result() or {}).get("status") not in (None, "running"),
                seconds=300,
            )
            guest.wait()
    finally:
        subprocess.run(
            [*COMMAND, "stop", str(folder.path)], capture_output=True, timeout=60, check=False
        )
    result = dict(folder.read_result() or {})
    assert result["goal_met"], result["reason"]
    assert events_of(folder, "fenced") == [
        "guest agent-1000 fenced: in 3 of the last 5 bad batches"
    ]
    assert "rows of agent-1000 (" in events_of(folder, "bad_update")[0]
    kept = json.loads((folder.quarantine / "1.json").read_text())
    assert set(kept["rows_of"]) == {"agent-1000"}
    assert result["senders"]["agent-1000"]["dropped"] > 0
    check_rows(result, folder)


def test_a_run_goes_back_and_on_after_an_agent_of_its_own_poisons_it(tmp_path: Path) -> None:
    # Without evaluators, as their environments would be broken, too.
    budget = ["session_config.stop={env_steps: 40000, eval_return: null}", "--evals", "0"]
    words = [*write_env(tmp_path), *budget, "--on", "local"]
    broken = {"BROKEN_FROM": "1000", "BROKEN_STEPS": "100"}
    with Train(tmp_path / "run", *words, **broken) as train:
        assert train.wait(120) == 0, train.words
    result = dict(train.folder.read_result() or {})
    assert result["reason"] == "budget of 40000 env_steps used"
    assert events_of(train.folder, "large_values")
    assert events_of(train.folder, "rolled_back")
    assert check_rows(result, train.folder)["rolled_back"] > 0
