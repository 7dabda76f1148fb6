"""Runs whose value functions see the state: their policies are evaluated, loaded and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal_like import load_policy, make_policy
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.analysis.export import export
from surreal_like.errors import DataError
from surreal_like.run.train import Run
from tests.add_ons import needs
from tests.runs.command import ROOT
from tests.surreal_like.algorithm.unrolls import play

ENV = "tests.surreal_like.env.joint_samples:Stated"
ADDED = {
    "env_config__observe_state": True,
    "env_config__agent_id": True,
    "env_config__team_reward": "mean",
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {"learner_config__model__normalize_obs": True}),
    "ppo memory": ("ppo", {"learner_config__model__memory": "lstm"}),
    "impala": ("impala", {"learner_config__model__normalize_values": True}),
    "a3c": ("a3c", {"learner_config__model__normalize_obs": True}),
    "a3c at the learner": (
        "a3c",
        {"learner_config__gradients_at": "learner", "learner_config__replay__capacity": 1000},
    ),
}


def trained(name: str, folder: Path) -> Run:
    algorithm, changed = RUNS[name]
    words = {"session_config__import_path": [str(ROOT)], **ADDED, **changed}
    return play(folder, algorithm, ENV, env_steps=600, **words)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    slow = [] if name == "ppo" else [pytest.mark.slow]
    return slow + ([needs("gradients")] if "a3c" in name else [])


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in RUNS])
def test_only_learning_needs_the_state(name: str, tmp_path: Path) -> None:
    run = trained(name, tmp_path / "run")
    assert run.ok
    assert run.result["iteration"] > 0
    # A return is what the environment gave: 1 for each step of the first agent, 2 of the second.
    assert evaluate(run.folder, checkpoint="latest", episodes=3)["mean_return"] == 11.0
    policy = load_policy(run.folder, "latest")
    obs = {"observation": np.zeros((2, 1), np.float32), "agent_id": np.eye(2, dtype=np.int8)}
    assert policy(obs)[0].shape == (2,)
    with pytest.raises(DataError, match="fits env_config\\.obs_spec neither as one") as error:
        policy({**obs, "observation": np.zeros((2, 3), np.float32)})
    assert "state" not in str(error.value)
    found = export(run.folder, tmp_path / "policy.pt2", format="pt2", checkpoint="latest")
    observed = {name for name in found.inputs if name.startswith("obs")}
    assert observed == {"obs/agent_id", "obs/observation"}


def test_a_policy_in_memory_acts_without_the_state() -> None:
    words = [f"session_config.import_path=[{ROOT}]", "env_config.observe_state=true"]
    policy = make_policy("ppo", env=ENV, overrides=words)
    assert policy({"observation": np.zeros(1, np.float32)})[0] in (0, 1, 2)
