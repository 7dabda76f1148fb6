"""Runs of a policy that learns rock, paper, scissors against another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.runs.command import Train

RPS: dict[str, Any] = {
    "algorithm": "ppo",
    "policies": {"main": {}, "other": {"fixed": "random"}},
    "learner_config": {"replay": {"batch_size": 4}},
    "env_config": {
        "env_name": "pettingzoo:classic/rps-v2",
        "num_envs": 4,
        "policy_mapping": {"player_*": ["main", "other"]},
    },
    "session_config": {"stop": {"iterations": 12, "eval_episodes": 10}},
}


def write(folder: Path, **changes: Any) -> str:
    """Writes the experiment with other sections; returns the path of the file."""
    file = folder / "rps.yaml"
    file.write_text(yaml.safe_dump({**RPS, **changes}, sort_keys=False))
    return str(file)


def run(folder: Path, *words: str) -> Train:
    with Train(folder, *words, "--on", "serial", "--quiet") as train:
        assert train.wait(200) == 0, train.words
    return train
