"""Finds a run by what the user calls it."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.run_folder import RUNS


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the argument RUN."""
    parser.add_argument("run", metavar="RUN", help="folder, name below runs/, or latest")


def all_runs() -> list[RunFolder]:
    """The runs below ``runs/``, the one begun or resumed last at the end."""
    if not RUNS.is_dir():
        return []
    folders = [RunFolder(path) for path in RUNS.iterdir() if (path / "config.yaml").is_file()]
    return sorted(folders, key=lambda folder: folder.config.stat().st_mtime)


def find_run(text: str) -> RunFolder:
    """The run that is meant by a path, by a name below ``runs/``, or by ``latest``.

    Raises:
        UsageError: there is none; names those that are near.
    """
    runs = all_runs()
    if text == "latest" and runs:
        return runs[-1]
    for path in (Path(text), RUNS / text):
        if (path / "config.yaml").is_file():
            return RunFolder(path)
    if text == "latest":
        raise UsageError(f"there is no run below {RUNS.resolve()}; begin one: surreal-like train")
    names = [run.path.name for run in runs]
    near = get_close_matches(text, names, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "surreal-like list runs shows all"
    raise UsageError(f"no run '{text}': neither {text} nor {RUNS / text} has a config.yaml; {hint}")
