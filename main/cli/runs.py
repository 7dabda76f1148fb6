"""Finds runs and tunings by path, name, pattern or ``latest``."""

from __future__ import annotations

import argparse
import glob
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from session.addons.hooks import OPEN, F, Hook, fetch, is_url
from session.did_you_mean import did_you_mean
from session.errors import UsageError
from session.folder import RUNS, RunFolder
from surreal_like.experiment.checkpoints import default_checkpoint
from surreal_like.experiment.trained import PREFIX, trained_folder
from surreal_like.run.folder import TUNING

if TYPE_CHECKING:
    from session.launchers.handle import RunHandle

_WILD = "*?["


def all_runs() -> list[RunFolder]:
    """Returns runs and tunings below ``runs/``; the one started or resumed last is at the end."""
    if not os.path.isdir(RUNS):
        return []
    return sorted(map(RunFolder, filter(_holds, RUNS.iterdir())), key=_began)


def is_tuning(folder: RunFolder) -> bool:
    """Returns True for the folder of a tuning."""
    return os.path.isfile(folder.path / TUNING)


def of_tunings(hook: Hook[F]) -> F:
    """Returns the function that tunings give for a hook.

    Raises:
        UsageError: this installation has no tunings.
    """
    return hook.require("this is the folder of a tuning, but the add-on of tunings is not here")


def _holds(path: Path) -> bool:
    """Returns True for the folder of a run or of a tuning."""
    return any(os.path.isfile(path / name) for name in ("config.yaml", TUNING))


def _began(folder: RunFolder) -> float:
    file = folder.path / "tune.yaml" if is_tuning(folder) else folder.config
    try:
        return file.stat().st_mtime
    except OSError:
        # A tuning whose tune file is gone.
        return 0.0


def find_run(text: str) -> RunFolder:
    """Returns the run for a path, a name below ``runs/``, or ``latest``.

    Raises:
        UsageError: there is none (the message lists similar names), or there are two, or it is a
            tuning.
    """
    folder = find_folder(text)
    if is_tuning(folder):
        raise UsageError(f"{folder} is a tuning: name one of its trials, as {folder}/trial-000")
    return folder


def find_policy(given: argparse.Namespace) -> RunFolder:
    """Returns the run of the arguments ``run`` and ``checkpoint``.

    Of a tuning that is the run of its best trial, with a message. If no checkpoint is named, it is
    the default one of the run.

    Raises:
        UsageError: there is none, or no trial has a score.
    """
    folder = find_folder(PREFIX * getattr(given, "trained", False) + given.run)
    if is_tuning(folder):
        tuning, folder = folder, of_tunings(OPEN)(folder).best_run()
        sys.stderr.write(f"best trial of tuning {tuning}: {folder.path.name}\n")
    if given.checkpoint is None:
        given.checkpoint = default_checkpoint(folder)
    return folder


def open_found(folder: RunFolder) -> RunHandle:
    """Opens a run or a tuning for commands; use it in a ``with`` statement.

    Raises:
        UsageError: no run was ever started there.
    """
    if is_tuning(folder):
        handle: RunHandle = of_tunings(OPEN)(folder)
        return handle
    from session.launchers.handle import open_run

    return open_run(folder)


def find_folder(text: str) -> RunFolder:
    """Returns the folder of a run or of a tuning; errors are those of :func:`find_run`.

    A run at a URL is fetched into a temporary folder; ``trained:NAME`` comes with the library.
    """
    place = fetch(text) if is_url(text) else trained_folder(text)
    if place is not None:
        return RunFolder(place, copy_of=text)
    runs = all_runs()
    if text == "latest" and runs:
        return runs[-1]
    # A path that says from where is no name below runs/.
    says_where = text.startswith((os.sep, f"{os.curdir}{os.sep}", f"{os.pardir}{os.sep}"))
    places = [Path(text)] if says_where else [Path(text), RUNS / text]
    found = [path for path in places if _holds(path)]
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

    In the place of a tuning are its trials.

    Raises:
        UsageError: there is none; the message lists similar names.
    """
    if is_url(text):
        return [find_folder(text)]
    if any(sign in text for sign in _WILD):
        paths = sorted({*glob.glob(text), *glob.glob(str(RUNS / text))})
        found = [RunFolder(path) for path in paths if _holds(Path(path))]
        if not found:
            raise UsageError(f"no run fits '{text}'; surreal-like list runs shows all")
        return _with_trials(found)
    if not any(_holds(path) for path in (Path(text), RUNS / text)):
        # Not Path.glob, which raises an error for a name that is too long.
        below = [
            RunFolder(Path(path).parent)
            for path in sorted(glob.glob(f"{glob.escape(text)}/*/config.yaml"))
        ]
        begun = [run for run in all_runs() if run.path.name.startswith(text)]
        # Exact names first: an environment or a number may stand between a prefix and the date.
        dated = re.compile(re.escape(text) + r"-\d{8}-\d{6}.*")
        exactly = [run for run in begun if dated.fullmatch(run.path.name)]
        if text != "latest" and (below or begun):
            return _with_trials(below or exactly or begun)
    return _with_trials([find_folder(text)])


def _with_trials(folders: Iterable[RunFolder]) -> list[RunFolder]:
    """Replaces tunings by their trials that have begun."""
    found: list[RunFolder] = []
    for folder in folders:
        trials = sorted(folder.path.glob("*/config.yaml")) if is_tuning(folder) else []
        found += [RunFolder(path.parent) for path in trials] or [folder]
    return found


def refuse_over(run: RunHandle) -> None:
    """Refuses a run that does not take commands any more.

    Raises:
        UsageError: it is a copy or over, was cut off, was never started, or has no supervisor.
    """
    from session.launchers.handle import refuse_copy
    from session.show.run_view import is_alive

    refuse_copy(run.folder)
    if run.running:
        return
    folder = run.folder
    resume = f"surreal-like train --resume --folder {folder}"
    if folder.over:
        reason = (folder.read_result() or {}).get("reason")
        raise UsageError(f"run {folder} is over ({reason}); to go on with it: {resume}")
    if is_alive(folder):
        raise UsageError(
            f"run {folder} has no supervisor, so its components take no commands: end and start "
            "each by its own line, as surreal-like plan --format shell prints it"
        )
    if os.path.exists(folder.progress):
        raise UsageError(f"run {folder} does not run: it was cut off; to go on with it: {resume}")
    submit = folder.path / folder.launcher / "submit.sh"
    begin = f"bash {submit}" if os.path.isfile(submit) else resume
    raise UsageError(f"run {folder} does not run: it has no supervisor; to begin: {begin}")
