"""Pages about a tuning: its state, and its end with the cost and commands for the best trial."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from main.cli.tune_table import trial_table
from session.show.text import count, decimal, duration
from surreal_like.tuning.space import settings_text
from surreal_like.tuning.state import OVER, TrialState

if TYPE_CHECKING:
    from session.launchers.handle import RunHandle
    from surreal_like.tuning.tune_file import TuneFile


def summary(path: Path, result: Mapping[str, Any], file: TuneFile, width: int = 0) -> list[str]:
    """Returns the last lines of a tuning.

    Args:
        path: folder of the tuning.
        result: content of ``result.json``.
        file: of the tuning.
        width: characters of the terminal; 0: no limit.
    """
    trials: Mapping[str, Mapping[str, Any]] = result["trials"]
    rows = [{"name": name, "doing": each["reason"], **each} for name, each in trials.items()]
    lines = ["", *trial_table(rows, width=width, budget=file.budget, mode=file.tune.mode), ""]
    lines.append(f"{result['status']} after {duration(result['seconds'])}: {result['reason']}")
    lines += [
        f"{name} was given up: {each['reason']}"
        for name, each in trials.items()
        if each["state"] == TrialState.error
    ]
    steps = sum(each["env_steps"] or 0 for each in trials.values())
    cost = [f"{count(steps)} env steps", f"{count(result['cpu_seconds'])} processor seconds"]
    if result["exploits"] or result["skipped"]:
        cost.append(exploits_text(result["exploits"], result["skipped"]))
    lines.append(", ".join(cost))
    lines += _resume_lines(path, [each["state"] for each in trials.values()])
    best = result["best"]
    if best is not None:
        name, settings = best["trial"], best["settings"]
        shown = f"@{settings_text(settings)}" if settings else ""
        lines.append(f"best: {name}{shown}, score {decimal(best['score'])}")
        commands = [
            ["train", *file.train_words(settings, path)],
            ["evaluate", str(path)],
            ["plot", str(path)],
        ]
        if result["exploits"]:
            commands.append(["plot", str(path), "--lineage"])
            commands.append(["tune", "--replay", str(path / best["path"])])
        lines += [shlex.join(["surreal-like", *words]) for words in commands]
    return lines


def tuning_page(handle: RunHandle, *, as_json: bool) -> tuple[str, bool]:
    """Returns the state of a tuning and of its trials, and whether it runs."""
    # Not at the top: the end of a tuning does not need it.
    from surreal_like.tuning.handle import TuningHandle

    found = TuningHandle(handle.folder).summary()
    if as_json:
        return json.dumps(found), handle.running
    trials, best = found["trials"].values(), found["best"]
    lines = [f"tuning {found['tuning']}: {found['state']}, {states_text(found['states'])}"]
    if best is not None:
        lines.append(f"best: {best['trial']}, score {decimal(best['score'])}")
    if not handle.running:
        lines += _resume_lines(handle.folder.path, [each["state"] for each in trials])
    rows = [{**each, "doing": each["reason"]} for each in trials]
    return "\n".join([*lines, "", *trial_table(rows)]), handle.running


def exploits_text(exploits: int, skipped: int) -> str:
    """Returns numbers of exploits, as ``1 exploit, 2 skipped``."""
    return f"{exploits} exploit{'' if exploits == 1 else 's'}, {skipped} skipped"


def _resume_lines(path: Path, states: Sequence[str]) -> list[str]:
    """Returns the line that resumes a tuning that does not run; none if all trials are complete."""
    folder = f"--folder {shlex.quote(str(path))}"
    if TrialState.error in states:
        return [
            "go on, also with trials given up: surreal-like tune --resume --retry-errors " + folder
        ]
    if all(state in OVER for state in states):
        return []
    return [f"go on with: surreal-like tune --resume {folder}"]


def states_text(states: Mapping[str, int]) -> str:
    """Returns numbers of trials by state, as ``3 terminated, 1 running``."""
    return ", ".join(f"{num} {state}" for state, num in states.items())
