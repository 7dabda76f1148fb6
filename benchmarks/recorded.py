"""Recordings that shipped experiments learn from, by the names that these give them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from surreal_like.experiment.read import read_experiment

# Folder -> words of the command that makes it; the folder is its last word.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "demos": ("record", "cartpole_dqn", "--trained", "--episodes", "50", "--out"),
    "reach_demos": ("record", "fetchreach_sac", "--trained", "--episodes", "20", "--out"),
    "rows": (
        "train",
        "pendulum_sac",
        "session_config.record.what=all",
        "session_config.stop.eval_return=null",
        "session_config.stop.env_steps=10000",
        "--seed",
        "101",
        "--folder",
    ),
    "cheetah_rows": (
        "train",
        "halfcheetah_sac",
        "session_config.record.what=all",
        "--seed",
        "101",
        "--folder",
    ),
}


def needed_by(config: Path, overrides: Sequence[str] = ()) -> set[str]:
    """Returns the names of the recordings that an experiment learns from."""
    given = read_experiment(config, overrides)
    dataset = given.session_config.get("dataset") or {}
    demos = (given.learner_config.get("replay") or {}).get("demos") or {}
    return {str(each["path"]) for each in (dataset, demos) if each.get("path")}


def make(name: str, folder: Path) -> None:
    """Makes a recording in a folder, unless it is there already; one that was cut is made anew.

    Raises:
        SystemExit: the command has failed.
    """
    place, begun = folder / name, folder / f"{name}.begun"
    if place.exists():
        return
    shutil.rmtree(begun, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    words = (sys.executable, "-m", "surreal_like", *COMMANDS[name], begun.name)
    if subprocess.run(words, cwd=folder, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(f"the recording {name} could not be made in {folder}")
    begun.rename(place)
