"""Recordings that shipped experiments learn from, by the names that these give them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from session.config import Config
from session.folder import RunFolder

# Folder -> words of the command that makes it; the folder is its last word.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "demos": ("record", "cartpole_dqn", "--trained", "--episodes", "50", "--out"),
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
}


def needed_by(config: Path) -> str:
    """Returns the name of the recording that an experiment learns from; empty: none."""
    session = Config.load_file(config).get("session_config") or {}
    return str((session.get("dataset") or {}).get("path", ""))


def make(name: str, folder: Path) -> None:
    """Makes a recording in a folder, unless it is there already.

    Raises:
        SystemExit: the command has failed.
    """
    place = folder / name
    made = RunFolder(place).result if COMMANDS[name][0] == "train" else place / "replay-0"
    if made.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    words = (sys.executable, "-m", "surreal_like", *COMMANDS[name], name)
    if subprocess.run(words, cwd=folder, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(f"the recording {name} could not be made in {folder}")
