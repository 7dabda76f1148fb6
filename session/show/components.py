"""The component table: one row each, of process state, heartbeat and the numbers of Tensorplex."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from session.launchers.status import ComponentStatus
from session.process.heartbeat import ENDED, HANGS_SECONDS, Beat, State
from session.show.text import MISSING, ago, rate, size

HEAD = ("component", "state", "work", "lag", "memory", "last beat", "pid", "restarts", "doing")
# Kinds of components without which nothing is learned.
CORE = ("learner", "ps", "replay")
# Rates in a component's status -> unit shown in the table.
_WORK = {
    "steps_per_second": "env steps",
    "updates_per_second": "updates",
    "inserts_per_second": "rows in",
    "samples_per_second": "rows out",
    "records_per_second": "records",
}

# Terminal styles; those of all other states are yellow.
STYLES = {
    State.running: "green",
    State.draining: "cyan",
    State.done: "dim",
    State.gone: "dim",
    State.silent: "bold yellow",
    State.failed: "bold red",
    State.dead: "bold red",
}
# Columns that a narrow terminal does without, the first one first.
LEFT_OUT = ("memory", "last beat", "lag")
RIGHT = ("memory", "pid", "restarts")
# An older death does not explain the present state.
_DEATH_MATTERS_SECONDS = 600.0
# A component with a younger heartbeat is not blocked by a long operation.
_BUSY_SECONDS = 2.0
_AT_WORK = (State.running, State.draining)


@dataclass(frozen=True, slots=True)
class ComponentRow(ComponentStatus):
    """State of one component; ``state`` is ``silent`` if its heartbeat is late.

    Args:
        work: the rates in words.
        lag_versions: versions by which its parameters are behind, None if unknown.
        rss_bytes: memory of its process, None if unknown.
        momentary: ``doing`` may be over before a user reads it.
        sessions: sessions of clients, of a gateway; None of other components.
        answer_seconds: median time to the answer of a request of a client, None if unknown.
    """

    work: str = ""
    lag_versions: float | None = None
    rss_bytes: float | None = None
    momentary: bool = False
    sessions: float | None = None
    answer_seconds: float | None = None

    @property
    def last_death(self) -> str:
        """Cause and age of its last death; empty if that is too old or the component has ended."""
        seconds = self.died_seconds
        past = seconds is not None and seconds > _DEATH_MATTERS_SECONDS
        if not self.died or self.state in ENDED or past:
            return ""
        return f"last death: {self.died}" + (f" {ago(seconds)}" if seconds else "")


def component_row(
    status: ComponentStatus,
    beat: Beat | None = None,
    reported: Mapping[str, Any] | None = None,
    *,
    timeout_seconds: float,
) -> ComponentRow:
    """Joins what is known of one component.

    Args:
        status: state of its process.
        beat: the last heartbeat, if that is on this machine.
        reported: the row of Tensorplex, if that has one.
        timeout_seconds: age from which a heartbeat is late.
    """
    known = reported or {}
    if status.state in ENDED or (status.pid and known.get("pid") not in (None, status.pid)):
        # The row came from a process that no longer runs.
        known = {}
    numbers: Mapping[str, float] = known.get("status", {})
    clients = {**_status_now(status, beat, timeout_seconds), **numbers}
    work = [f"{words} {rate(numbers[key])}" for key, words in _WORK.items() if key in numbers]
    return ComponentRow(
        **asdict(status) | {"state": _state(status, beat, timeout_seconds)},
        work=", ".join(work),
        lag_versions=numbers.get("version_lag"),
        rss_bytes=known.get("rss_bytes"),
        momentary=beat is not None
        and beat.state in _AT_WORK
        and beat.busy_seconds > 0
        and beat.age_seconds <= _BUSY_SECONDS,
        sessions=clients.get("sessions"),
        answer_seconds=clients.get("latency_p50_seconds"),
    )


def find_absence(row: ComponentRow, beat: Beat | None, *, scalable: bool) -> str:
    """Describes why a component does not work though its run goes on; empty if it works.

    Args:
        row: row of the component.
        beat: last heartbeat of the component; None if that is not on this machine.
        scalable: the component may have been scaled away.
    """
    if row.state in ENDED:
        planned = scalable and row.state in (State.done, State.gone)
        return "" if planned else "has ended"
    if row.state == State.waiting:
        return "waits for its start"
    if row.state == State.starting:
        return "starts again" if row.restarts else ""
    late = row.age_seconds if beat is None else beat.age_seconds - beat.busy_seconds
    hangs = beat is not None and late is not None and late >= HANGS_SECONDS
    if hangs or row.state == State.silent:
        return "no sign of life" + (f" for {late:.0f} s" if late is not None else "")
    return ""


def _status_now(
    status: ComponentStatus, beat: Beat | None, timeout_seconds: float
) -> Mapping[str, float]:
    """Returns the numbers of a heartbeat, none of one that is late or of a process that ended."""
    if beat is None or status.state in ENDED or beat.late(timeout_seconds):
        return {}
    return beat.status


def _state(status: ComponentStatus, beat: Beat | None, timeout_seconds: float) -> State:
    """Returns the state of the process; that of the heartbeat if it says more."""
    if beat is None or status.state not in (*_AT_WORK, State.gone):
        return status.state
    if status.state == State.gone:
        # A killed process has left a heartbeat of its work.
        return beat.state if beat.state in ENDED else status.state
    if beat.state == State.done:
        # Its end has not been noticed yet; it may be started again.
        return State.draining
    late = beat.state in _AT_WORK and beat.late(timeout_seconds)
    return State.silent if late else beat.state


def cells(row: ComponentRow) -> list[str]:
    """Returns the texts of one row below HEAD."""
    return [
        row.name,
        row.state + ("" if row.exit_code is None else f", exit code {row.exit_code}"),
        row.work or MISSING,
        MISSING if row.lag_versions is None else f"{row.lag_versions:.0f} versions",
        MISSING if row.rss_bytes is None else size(row.rss_bytes),
        ago(row.age_seconds),
        str(row.pid) if row.pid else MISSING,
        str(row.restarts),
        row.doing or row.last_death,
    ]


def component_table(rows: Iterable[ComponentRow]) -> dict[str, list[str]]:
    """Returns the columns of all rows, without empty ones, such as most of a finished run."""
    texts = zip(*map(cells, rows), strict=True)
    return {
        title: [title, *column]
        for title, column in zip(HEAD, texts, strict=False)
        if not {*column} <= {"", MISSING}
    }
