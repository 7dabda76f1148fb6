"""The table of components with all that is known of each: of its process, and from itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from session.format import MISSING, rate, short_time, size

if TYPE_CHECKING:
    from session.launchers.status import ComponentStatus

HEAD = ("component", "state", "work", "lag", "memory", "last beat", "pid", "restarts", "doing")
# Which numbers of a component's state say how fast it works, and in what.
_WORK = {
    "steps_per_second": "env steps",
    "updates_per_second": "updates",
    "inserts_per_second": "rows in",
    "samples_per_second": "rows out",
    "records_per_second": "records",
}

_RIGHT = ("memory", "pid", "restarts")
_ENDED = ("gone", "dead", "done", "failed")
# A death that is longer ago does not explain what is seen now.
_DEATH_MATTERS_SECONDS = 600.0


def component_rows(
    known: Sequence[ComponentStatus], told: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each component.

    Each has ``name``, ``state``, ``age_seconds`` since its last beat, ``pid``, ``restarts``,
    ``exit_code``, ``doing``, ``last_death``, ``work`` (its rates in words), ``lag_versions`` and
    ``rss_bytes``; what is unknown is None.

    Args:
        known: the rows of the launcher.
        told: name -> row of Tensorplex, for those that it has heard.
    """
    return [_row(status, told.get(status.name, {})) for status in known]


def cells(row: Mapping[str, Any]) -> list[str]:
    """The texts of one row below HEAD."""
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
    """Titles, the numbers of the columns that are aligned at their right side, and texts.

    Columns in which nothing stands are left out, as those of all parts of a run that is over are.
    """
    table = [cells(row) for row in rows]
    full = [i for i in range(len(HEAD)) if any(row[i] not in ("", MISSING) for row in table)]
    head = [HEAD[i] for i in full]
    right = [place for place, i in enumerate(full) if HEAD[i] in _RIGHT]
    return head, right, [[row[i] for i in full] for row in table]


def last_death(status: ComponentStatus) -> str:
    """How and when the process before this one died, for as long as that matters, else empty."""
    seconds = status.died_seconds
    past = seconds is not None and seconds > _DEATH_MATTERS_SECONDS
    if not status.died or status.state in _ENDED or past:
        return ""
    return f"last death: {status.died}" + (f" {short_time(seconds)} ago" if seconds else "")


def _row(status: ComponentStatus, told: Mapping[str, Any]) -> dict[str, Any]:
    if status.state in _ENDED or (status.pid and told.get("pid") not in (None, status.pid)):
        # That is what a process has told that is there no more.
        told = {}
    numbers: Mapping[str, float] = told.get("status", {})
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
        "rss_bytes": told.get("rss_bytes"),
    }
