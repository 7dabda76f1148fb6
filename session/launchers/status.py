"""The table of components: one row each, from the state of its process and its heartbeat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from session.folder import RunFolder
from session.process.heartbeat import ALIVE, Beat, State, read_beats

# A process that started later than this after its heartbeat is another one with the same pid.
_MARGIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One row of the table of components.

    Args:
        name: component name.
        state: ``waiting`` for its start, ``starting``, ``running``, ``draining``, ``gone``, or,
            in a run without a supervisor, ``dead``.
        pid: process id, 0 without a process.
        age_seconds: since its last heartbeat, None without one.
        restarts: number of restarts.
        exit_code: exit code of its last process, None while that lives.
        doing: activity by its last heartbeat, or the error with which it failed.
        died: the unexpected end of its previous process, empty if there was none.
        died_seconds: seconds since then, None if unknown.
    """

    name: str
    state: State
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
    state: State,
    pid: int = 0,
    restarts: int = 0,
    exit_code: int | None = None,
    loss: tuple[str, float] | None = None,
) -> ComponentStatus:
    """Builds a row from the state of a process and its last heartbeat.

    Args:
        name: component name.
        beat: last heartbeat.
        state, pid, restarts, exit_code: facts that the caller knows.
        loss: error of its latest death before this start, and seconds since then.
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
    """Builds the table of a run without a supervisor, from its files and processes."""
    ends: Mapping[str, Any] = (folder.read_result() or {}).get("components") or {}
    beats = read_beats(folder.alive)
    over = folder.over
    rows = []
    for name in dict.fromkeys([*ends, *beats]):
        beat, end = beats.get(name), ends.get(name, {})
        state = State.gone if beat is None or over else state_by_beat(beat)
        rows.append(
            status_row(
                name,
                beat,
                state=state,
                pid=beat.pid if beat is not None and state in ALIVE else 0,
                restarts=end.get("restarts", 0),
                exit_code=end.get("exit_code"),
            )
        )
    return rows


def state_by_beat(beat: Beat) -> State:
    """Returns the state of the heartbeat, or ``dead`` or ``gone`` if the process has ended."""
    if beat.state in ALIVE:
        return beat.state if process_lives(beat) else State.dead
    return State.dead if beat.state == State.failed else State.gone


def process_lives(beat: Beat) -> bool:
    """Returns True if the process of the heartbeat lives; a reused pid does not count."""
    import psutil  # imported late, as most that import this module need only the rows

    try:
        process = psutil.Process(beat.pid)
        # The difference does not depend on the system's clock.
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.create_time() + psutil.boot_time()
        born_before = age >= beat.age_seconds - _MARGIN_SECONDS
        return born_before and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
