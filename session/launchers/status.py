"""The table of components: one row each, put together from what is known of a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from session.folder import RunFolder
from session.heartbeat import Beat, read_beats

# A process that was started after this beat of it must be another one with the same number.
_MARGIN_SECONDS = 2.0
_ALIVE = ("starting", "running", "draining")


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One row of the table of components.

    Args:
        name: component name.
        state: ``waiting`` for its start, ``starting``, ``running``, ``draining``, ``gone``, or,
            where nobody supervises, ``dead``.
        pid: its process, 0 where there is none.
        age_seconds: since its last beat, None if it was never heard.
        restarts: how often it was started again.
        exit_code: of its last process, None while that lives.
        doing: what it said it is doing, or why it failed.
        died: how the process before this one ended, where nobody had asked for that.
        died_seconds: how long ago, None where that is unknown.
    """

    name: str
    state: str
    pid: int
    age_seconds: float | None
    restarts: int
    exit_code: int | None
    doing: str
    died: str = ""
    died_seconds: float | None = None


def status_row(
    name: str,
    beat: Beat | None,
    *,
    state: str,
    pid: int = 0,
    restarts: int = 0,
    exit_code: int | None = None,
    loss: tuple[str, float] | None = None,
) -> ComponentStatus:
    """A row of what is known of a process, and of what it says of itself.

    Args:
        name: component name.
        beat: its last one.
        state, pid, restarts, exit_code: as whoever watches the process knows them.
        loss: how it died before this start, and how many seconds ago.
    """
    died, died_seconds = loss or ("", None)
    return ComponentStatus(
        name=name,
        state=state,
        pid=pid,
        age_seconds=beat.age_seconds if beat is not None else None,
        restarts=restarts,
        exit_code=exit_code,
        doing=beat.doing if beat is not None else "",
        died=died,
        died_seconds=died_seconds,
    )


def rows_of_files(folder: RunFolder) -> list[ComponentStatus]:
    """The table as the files of a run and its processes tell it, where nobody supervises them."""
    ends: Mapping[str, Any] = (folder.read_result() or {}).get("components") or {}
    beats = read_beats(folder.alive)
    over = folder.over
    rows = []
    for name in dict.fromkeys([*ends, *beats]):
        beat, end = beats.get(name), ends.get(name, {})
        state = "gone" if beat is None or over else state_by_beat(beat)
        rows.append(
            status_row(
                name,
                beat,
                state=state,
                pid=beat.pid if beat is not None and state in _ALIVE else 0,
                restarts=end.get("restarts", 0),
                exit_code=end.get("exit_code"),
            )
        )
    return rows


def state_by_beat(beat: Beat) -> str:
    """The state that a component told of, unless its process has died since, or has ended."""
    if beat.state in _ALIVE:
        return beat.state if process_lives(beat) else "dead"
    return "dead" if beat.state == "failed" else "gone"


def process_lives(beat: Beat) -> bool:
    """True if the very process that beat is there; numbers of processes are used again."""
    try:
        process = psutil.Process(beat.pid)
        born_before = process.create_time() <= beat.time + _MARGIN_SECONDS
        return born_before and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
