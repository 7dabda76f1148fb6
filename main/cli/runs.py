"""Finds runs by path, name, pattern or ``latest``."""

from __future__ import annotations

import argparse
import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from session.did_you_mean import did_you_mean
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.run.folder import RUNS

if TYPE_CHECKING:
    from session.launchers.launcher import RunControl

_WILD = "*?["


def add_run(parser: argparse.ArgumentParser) -> None:
    """Adds the argument RUN."""
    parser.add_argument("run", metavar="RUN", help="folder, name below runs/, or latest")


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Adds the argument RUN..., whose words are for :func:`find_runs`."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder, name below runs/ or the beginning of several, a pattern, or latest",
    )


def all_runs() -> list[RunFolder]:
    """Returns the runs below ``runs/``; the one started or resumed last is at the end."""
    if not RUNS.is_dir():
        return []
    folders = [RunFolder(path) for path in RUNS.iterdir() if (path / "config.yaml").is_file()]
    return sorted(folders, key=lambda folder: folder.config.stat().st_mtime)


def find_run(text: str) -> RunFolder:
    """Returns the run for a path, a name below ``runs/``, or ``latest``.

    Raises:
        UsageError: there is none (the message lists similar names), or there are two.
    """
    runs = all_runs()
    if text == "latest" and runs:
        return runs[-1]
    # Text with a slash is a path, not a name.
    places = [Path(text)] if os.sep in text else [Path(text), RUNS / text]
    found = [path for path in places if (path / "config.yaml").is_file()]
    if len({path.resolve() for path in found}) > 1:
        raise UsageError(
            f"two runs are called '{text}': write ./{text} or {RUNS / text} for the one that is "
            "meant"
        )
    if found:
        return RunFolder(found[0])
    if text == "latest":
        raise UsageError(f"there is no run below {RUNS.resolve()}; begin one: surreal-like train")
    names = [run.path.name for run in runs]
    otherwise = "surreal-like list runs shows all"
    hint = did_you_mean(text, names, most=2, cutoff=0.4, otherwise=otherwise)
    raise UsageError(f"no run '{text}': neither {text} nor {RUNS / text} has a config.yaml; {hint}")


def find_runs(text: str) -> list[RunFolder]:
    """Returns the runs that match one word: a run, a pattern, or a prefix of names.

    Raises:
        UsageError: there is none; the message lists similar names.
    """
    if any(sign in text for sign in _WILD):
        paths = sorted({*glob.glob(text), *glob.glob(str(RUNS / text))})
        found = [RunFolder(path) for path in paths if (Path(path) / "config.yaml").is_file()]
        if not found:
            raise UsageError(f"no run fits '{text}'; surreal-like list runs shows all")
        return found
    if not any((path / "config.yaml").is_file() for path in (Path(text), RUNS / text)):
        below = [RunFolder(path.parent) for path in sorted(Path(text).glob("*/config.yaml"))]
        begun = [run for run in all_runs() if run.path.name.startswith(text)]
        # Exact names first: an environment or a number may stand between a prefix and the date.
        dated = re.compile(re.escape(text) + r"-\d{8}-\d{6}.*")
        exactly = [run for run in begun if dated.fullmatch(run.path.name)]
        if text != "latest" and (below or begun):
            return below or exactly or begun
    return [find_run(text)]


def refuse_over(run: RunControl) -> None:
    """Refuses a run that does not take commands any more.

    Raises:
        UsageError: it is over, was cut off, or was never started.
    """
    if run.running:
        return
    folder = run.folder
    resume = f"surreal-like train --resume --folder {folder}"
    if folder.over:
        reason = (folder.read_result() or {}).get("reason")
        raise UsageError(f"run {folder} is over ({reason}); to go on with it: {resume}")
    if folder.progress.exists():
        raise UsageError(f"run {folder} does not run: it was cut off; to go on with it: {resume}")
    raise UsageError(f"run {folder} does not run: it has no supervisor; to begin: {resume}")
