"""State and duration of a run in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.folder import RunFolder
from session.launchers.registry import launcher_of
from session.process.heartbeat import read_beats
from session.process.state import ALIVE, State
from session.show.text import duration

_SILENT_SECONDS = 10.0
# State of a run that was killed.
CUT_OFF = "cut off"


def state_of(folder: RunFolder, launcher: str | None = None) -> str:
    """Returns the state of a run, in one to three words.

    Args:
        folder: the run folder.
        launcher: name of its launcher, if known.
    """
    result = folder.read_result() or {}
    running = result.get("status", "running") == "running"
    if folder.in_use or (running and _is_alive(folder)):
        return "running"
    if running and launcher_of(launcher or "").remote:
        # Its files are on the cluster and are not read here.
        return f"on {launcher}"
    return _without_result(folder) if running else outcome_word(result)


def outcome_word(result: Mapping[str, Any]) -> str:
    """Returns the outcome of a run that is over: that of its goal, if it ended as planned."""
    if result.get("status") != "stopped":
        return str(result.get("status"))
    return {True: "goal met", False: "goal not met", None: "done"}[result.get("goal_met")]


def took(times: Mapping[str, Any], *, counted: bool) -> str:
    """Formats the duration of a run: ``wall_seconds``, and ``real_seconds`` of a counted clock."""
    seconds, real = times.get("wall_seconds"), times.get("real_seconds")
    wall = duration(seconds)
    if not counted or seconds is None:
        return wall
    return f"{wall} counted" if real is None else f"{duration(real)} ({wall} counted)"


def _without_result(folder: RunFolder) -> str:
    """Returns the state of a run without living processes and without a result."""
    if folder.progress.exists():
        return CUT_OFF
    beats = read_beats(folder.alive).values()
    if not beats:
        return "planned"
    # A learner's script reports no progress and writes no result.
    return "ended" if all(beat.state == State.done for beat in beats) else CUT_OFF


def _is_alive(folder: RunFolder) -> bool:
    """Returns True if a component is alive; a user may have started components by hand."""
    beats = read_beats(folder.alive).values()
    return any(b.state in ALIVE and not b.late(_SILENT_SECONDS) for b in beats)
