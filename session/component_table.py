"""The component table: joins the launcher's process states with reported heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from session.format import MISSING, rate, short_time, size
from session.state import ENDED

if TYPE_CHECKING:
    from session.launchers.status import ComponentStatus

HEAD = ("component", "state", "work", "lag", "memory", "last beat", "pid", "restarts", "doing")
# Rates in a component's status -> unit shown in the table.
_WORK = {
    "steps_per_second": "env steps",
    "updates_per_second": "updates",
    "inserts_per_second": "rows in",
    "samples_per_second": "rows out",
    "records_per_second": "records",
}

_RIGHT = ("memory", "pid", "restarts")
# An older death does not explain the present state.
_DEATH_MATTERS_SECONDS = 600.0


def component_rows(
    known: Sequence[ComponentStatus], told: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns one row per component.

    Each has ``name``, ``state``, ``age_seconds`` since its last beat, ``pid``, ``restarts``,
    ``exit_code``, ``doing``, ``last_death``, ``work`` (its rates in words), ``lag_versions`` and
    ``rss_bytes``; unknown values are None.

    Args:
        known: process states from the launcher.
        told: name -> row of Tensorplex, for components that have sent a heartbeat.
    """
    return [_row(status, told.get(status.name, {})) for status in known]


def cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the texts of one row below HEAD."""
    age, rss, lag = row["age_seconds"], row["rss_bytes"], row["lag_versions"]
    ended = row["exit_code"] is not None
    return [
        row["name"],
        row["state"] + (f", exit code {row['exit_code']}" if ended else ""),
        row["work"] or MISSING,
        MISSING if lag is None else f"{lag:.0f} versions",
        MISSING if rss is None else size(rss),
        MISSING if age is None else f"{short_time(age)} ago",
        str(row["pid"]) if row["pid"] else MISSING,
        str(row["restarts"]),
        row["doing"] or row["last_death"],
    ]


def component_cells(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[int], list[list[str]]]:
    """Returns titles, indices of the right-aligned columns, and the texts of all rows.

    Empty columns are left out, for example most columns of a finished run.
    """
    table = [cells(row) for row in rows]
    full = [i for i in range(len(HEAD)) if any(row[i] not in ("", MISSING) for row in table)]
    head = [HEAD[i] for i in full]
    right = [place for place, i in enumerate(full) if HEAD[i] in _RIGHT]
    return head, right, [[row[i] for i in full] for row in table]


def last_death(status: ComponentStatus) -> str:
    """Cause and age of the last death; empty if it is too old or the component has ended."""
    seconds = status.died_seconds
    past = seconds is not None and seconds > _DEATH_MATTERS_SECONDS
    if not status.died or status.state in ENDED or past:
        return ""
    return f"last death: {status.died}" + (f" {short_time(seconds)} ago" if seconds else "")


def _row(status: ComponentStatus, reported: Mapping[str, Any]) -> dict[str, Any]:
    if status.state in ENDED or (status.pid and reported.get("pid") not in (None, status.pid)):
        # The heartbeat came from a process that no longer runs.
        reported = {}
    numbers: Mapping[str, float] = reported.get("status", {})
    work = [f"{words} {rate(numbers[key])}" for key, words in _WORK.items() if key in numbers]
    return {
        "name": status.name,
        "state": status.state,
        "age_seconds": status.age_seconds,
        "pid": status.pid,
        "restarts": status.restarts,
        "exit_code": status.exit_code,
        "doing": status.doing,
        "last_death": last_death(status),
        "work": ", ".join(work),
        "lag_versions": numbers.get("version_lag"),
        "rss_bytes": reported.get("rss_bytes"),
    }
