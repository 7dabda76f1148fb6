"""Pages about a tuning: its table of trials, its state, and its end with the cost."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session.errors import SurrealError
from session.folder import RunFolder
from session.show.text import bar, count, decimal, duration, fit_table, plural, size, width_of
from surreal_like.addons.tuning.space_and_mutation import setting_text, settings_text, short_names
from surreal_like.addons.tuning.state import OVER, TrialState, want_slots
from surreal_like.experiment.machine import find_available_bytes

if TYPE_CHECKING:
    from rich.text import Text

    from session.launchers.handle import RunHandle
    from surreal_like.addons.tuning.tune_file import TuneFile

Row = Mapping[str, Any]

_GAP = "  "
# Columns that a narrow terminal does without, the first one first; then settings, the last first.
_LEFT_OUT = ("doing", "best", "of budget")
_WIDE, _LONG_BAR, _SHORT_BAR = 100, 12, 6
_SETTINGS, _LEAST_HEAD, _MOST_CELL = 4, 6, 16
_LEAST_DOING = 12
_RIGHT = ("score", "best", "time", "failures")
# Parts of a line of text -> their style.
_COLOURS = {
    r"(?<=  )running\b": "green",
    r"(?<=  )(paused|pending)\b": "yellow",
    r"(?<=  )error\b": "bold red",
    r"(?<=  )terminated\b": "dim",
    "━+": "blue",
    "─+": "dim",
}


def trial_table(
    rows: Sequence[Row],
    *,
    width: int = 0,
    height: int = 0,
    budget: float | None = None,
    mode: str = "max",
) -> list[str]:
    """Lays out trials as lines; the best ones by score if not all fit.

    Args:
        rows: ``name``, ``doing`` and the entry in ``tuning.json`` of each trial.
        width: characters of the terminal; 0: no limit.
        height: maximum number of lines; 0: no limit.
        budget: budget of a trial, in the unit of its time; None: no bar.
        mode: ``max`` or ``min`` of the score is best.
    """
    shown = list(rows)
    if 0 < height <= len(rows):
        shown = best_first(rows, mode)[: max(1, height - 2)]
    found = _columns(shown, width, budget)
    spare = [*_LEFT_OUT, *reversed([name for name in found if name.startswith("\0")])]
    if width and (doing := found.get("doing")):
        room = width - width_of(found, _GAP) + max(map(len, doing))
        if room >= _LEAST_DOING:
            found["doing"] = [_cut(cell, room) for cell in doing]
    lines = fit_table(found, width, spare=spare, right=_RIGHT, gap=_GAP).splitlines()
    more = len(rows) - len(shown)
    return lines + ([f"{more} more"] if more else [])


def best_first(rows: Sequence[Row], mode: str) -> list[Row]:
    """Sorts trials by score; those without one last, equal ones in the given order."""
    sign = -1.0 if mode == "max" else 1.0

    def rank(row: Row) -> tuple[bool, float]:
        return row["score"] is None, 0.0 if row["score"] is None else sign * row["score"]

    return sorted(rows, key=rank)


def _columns(rows: Sequence[Row], width: int, budget: float | None) -> dict[str, list[str]]:
    """Returns name of the column -> head and cells; names of settings begin with a zero byte."""
    narrow = 0 < width < _WIDE
    found = {
        "trial": [row["name"] for row in rows],
        "state": [str(row["state"]) for row in rows],
        "score": [decimal(row["score"]) for row in rows],
        "best": [decimal(row["best_score"]) for row in rows],
        "time": [count(row["time"]) for row in rows],
    }
    if budget:
        long = _SHORT_BAR if narrow else _LONG_BAR
        found["of budget"] = [bar(row["time"] / budget, long) for row in rows]
    if any(row["generation"] for row in rows):
        found["loaded"] = [_load_text(row, narrow=narrow) for row in rows]
    keys = sorted({key for row in rows for key in row["settings"]})
    for key, name in list(short_names(keys).items())[:_SETTINGS]:
        cells = [_cut(setting_text(row["settings"].get(key)), _MOST_CELL) for row in rows]
        most = max(_LEAST_HEAD, *map(len, cells)) if narrow else len(name)
        found[f"\0{key}"] = [_cut(name, most), *cells]
    if any(row["failures"] for row in rows):
        found["failures"] = [str(row["failures"]) for row in rows]
    if any(row["doing"] for row in rows):
        found["doing"] = [row["doing"] for row in rows]
    return {
        name: cells if name.startswith("\0") else ["" if name == "doing" else name, *cells]
        for name, cells in found.items()
    }


def _load_text(row: Row, *, narrow: bool) -> str:
    if not row["generation"]:
        return "-"
    parent = row["parent"].removeprefix("trial-") if narrow else row["parent"]
    return f"{row['generation']} <- {parent}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def summary(path: Path, result: Mapping[str, Any], file: TuneFile, width: int = 0) -> list[str]:
    """Returns the last lines of a tuning.

    Args:
        path: folder of the tuning.
        result: content of ``result.json``.
        file: file of the tuning.
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
    from surreal_like.addons.tuning.handle import TuningHandle

    found = TuningHandle(handle.folder).summary()
    if as_json:
        return json.dumps(found), handle.running
    trials, best = found["trials"].values(), found["best"]
    lines = [f"tuning {found['tuning']}: {found['state']}, {states_text(found['states'])}"]
    if best is not None:
        lines.append(f"best: {best['trial']}, score {decimal(best['score'])}")
    slots, reason = want_slots(found["states"])
    wanted = f"wanted: {slots} slots ({reason})"
    states = [each["state"] for each in trials]
    lines += [
        f"{name or 'this machine'} gets no trials any more: {reason}"
        for name, reason in found["unfit"].items()
    ]
    lines += [wanted] if handle.running else _resume_lines(handle.folder.path, states)
    rows = [{**each, "doing": each["reason"]} for each in trials]
    return "\n".join([*lines, "", *trial_table(rows)]), handle.running


def tuning_facts(folder: RunFolder) -> dict[str, Any]:
    """Reads the facts of a tuning, of all its trials together; the score is the best one."""
    # Not at the top: the end of a tuning does not need it.
    from surreal_like.addons.tuning.handle import TuningHandle

    handle, what = TuningHandle(folder), dict[str, Any]()
    result = folder.read_result() or {}
    try:
        found = handle.summary()
        experiment = handle.file.experiment
        what = {
            "state": f"{found['state']}: {states_text(found['states'])}",
            "algorithm": experiment.get("algorithm"),
            "environment": (experiment.get("env_config") or {}).get("env_name"),
            "best_return": (found["best"] or {}).get("score"),
        }
    except SurrealError:
        what = {"state": "damaged"}
    steps = [each["env_steps"] or 0 for each in (result.get("trials") or {}).values()]
    names = ("algorithm", "environment", "seed", "best_return")
    return {
        "run": folder.path.name,
        "folder": str(folder.path),
        "launcher": "tuning",
        **dict.fromkeys(names),
        **what,
        "env_steps": sum(steps) if steps else None,
        "wall_seconds": result.get("seconds"),
        "real_seconds": None,
    }


def head_lines(rows: Sequence[Row], slots: int, skipped: int, mode: str) -> list[str]:
    """Returns the lines above a live table: trials by state, slots, exploits, best, memory.

    Args:
        rows: As of :func:`trial_table`.
        slots: Number of slots.
        skipped: Number of exploits that were left out.
        mode: ``max`` or ``min`` of the score is best.
    """
    states = Counter(str(each["state"]) for each in rows)
    exploits = sum(each["generation"] for each in rows)
    more = [f"slots {states['running']} of {slots}"]
    if exploits or skipped:
        more.append(exploits_text(exploits, skipped))
    scored = [each for each in rows if each["score"] is not None and each["state"] != "error"]
    for best in best_first(scored, mode)[:1]:
        more.append(f"best {decimal(best['score'])} {best['name']}")
    more.append(f"{size(find_available_bytes())} memory free")
    known = {str(each): states[str(each)] for each in TrialState if states[str(each)]}
    over = sum(states[str(each)] for each in OVER)
    return [f"{over} of {len(rows)} trials over: {states_text(known)}", " · ".join(more)]


def colour_lines(head: Sequence[str], table: Sequence[str]) -> Text:
    """Joins lines: the first one of each part stands out, and states have their colours."""
    # Not at the top: it is slow.
    from rich.text import Text

    rows = [Text(row) for row in table[1:]]
    for row, (pattern, style) in product(rows, _COLOURS.items()):
        row.highlight_regex(pattern, style)
    lines = [Text(), Text(head[0], "bold"), *(Text(line, "dim") for line in head[1:])]
    lines += [Text(), Text(table[0], "dim"), *rows]
    # One text, which rich lays out in two thirds of the time that a group of lines takes.
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def exploits_text(exploits: int, skipped: int) -> str:
    """Returns numbers of exploits, as ``1 exploit, 2 skipped``."""
    return f"{plural(exploits, 'exploit')}, {skipped} skipped"


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
