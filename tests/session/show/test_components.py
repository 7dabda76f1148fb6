"""The table of components: what the launcher knows beside what the component tells."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from session.launchers.status import ComponentStatus
from session.process.heartbeat import Beat, State
from session.show.components import (
    HEAD,
    RIGHT,
    ComponentRow,
    cells,
    component_row,
    component_table,
    find_absence,
)
from session.show.text import fit_table

AGENT = ComponentStatus("agent-0", State.running, 17, 0.25, 1, None, "")
TIMEOUT = 10.0
REPORTED = {
    "pid": 17,
    "rss_bytes": 250_000_000,
    "status": {"steps_per_second": 1234.0, "version_lag": 3.0, "version": 9.0},
}


def row_of(status: ComponentStatus, reported: Mapping[str, Any] | None = None) -> ComponentRow:
    return component_row(status, None, reported, timeout_seconds=TIMEOUT)


def test_what_a_component_reports_stands_beside_what_is_known_of_it() -> None:
    row = row_of(AGENT, REPORTED)
    assert (row.work, row.lag_versions, row.rss_bytes) == (
        "env steps 1,234/s",
        3.0,
        250_000_000,
    )
    assert dict(zip(HEAD, cells(row), strict=True)) == {
        "component": "agent-0",
        "state": "running",
        "work": "env steps 1,234/s",
        "lag": "3 versions",
        "memory": "250 MB",
        "last beat": "250 ms ago",
        "pid": "17",
        "restarts": "1",
        "doing": "",
    }


def test_a_component_without_a_heartbeat_has_dashes() -> None:
    waiting = ComponentStatus("agent-1", State.waiting, 0, None, 0, None, "")
    row = row_of(waiting)
    assert cells(row) == ["agent-1", "waiting", "-", "-", "-", "-", "-", "0", ""]


def test_what_a_dead_process_has_reported_is_not_shown() -> None:
    death = "killed by SIGKILL"
    again = ComponentStatus("agent-0", State.starting, 18, 0.1, 2, None, "", died=death)
    gone = ComponentStatus("agent-0", State.gone, 0, 9.0, 1, 0, "")
    for status in (again, gone):
        row = row_of(status, REPORTED)
        assert (row.work, row.rss_bytes, row.lag_versions) == ("", None, None)
    assert cells(row_of(again))[-1] == "last death: killed by SIGKILL"
    assert cells(row_of(gone))[1] == "gone, exit code 0"


def test_a_finished_process_shows_no_rate() -> None:
    done = ComponentStatus("agent-0", State.done, 0, 9.0, 0, 0, "")
    row = row_of(done, REPORTED)
    assert row.work == ""


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    ended = [ComponentStatus(name, State.done, 0, None, 0, None, "") for name in ("a", "b")]
    table = component_table(map(row_of, ended))
    assert fit_table(table, 0, spare=(), right=RIGHT).splitlines() == [
        "component   state   restarts",
        "a           done           0",
        "b           done           0",
    ]


@pytest.mark.parametrize(
    ("state", "doing", "seconds", "shown"),
    [
        ("running", "", 12.34, "last death: killed by SIGKILL 12.3 s ago"),
        ("running", "not ready", 12.34, "not ready"),
        ("waiting", "", None, "last death: killed by SIGKILL"),
        ("running", "", 601.0, ""),
        ("gone", "", 12.34, ""),
        ("dead", "", 12.34, ""),
    ],
)
def test_a_death_is_shown_as_past_and_while_it_matters(
    state: str, doing: str, seconds: float | None, shown: str
) -> None:
    died = ComponentStatus("a", State(state), 1, 0.1, 1, None, doing, "killed by SIGKILL", seconds)
    assert cells(row_of(died))[-1] == shown


@pytest.mark.parametrize(
    ("state", "beat", "age", "shown"),
    [
        ("running", "running", 0.0, "running"),
        ("running", "draining", 0.0, "draining"),
        ("running", "running", 2 * TIMEOUT, "silent"),
        ("running", "failed", 2 * TIMEOUT, "failed"),
        # It is being restarted, or its end has not been noticed yet.
        ("running", "done", 0.0, "draining"),
        ("starting", "done", 0.0, "starting"),
        ("done", "done", 0.0, "done"),
        ("gone", "done", 0.0, "done"),
        ("gone", "running", 2 * TIMEOUT, "gone"),
    ],
)
def test_the_state_is_that_of_the_process_or_of_its_heartbeat(
    state: str, beat: str, age: float, shown: str
) -> None:
    status = ComponentStatus("a", State(state), 17, age, 0, None, "")
    seen = Beat("a", 17, State(beat), 1, time.time() - age)
    assert component_row(status, seen, timeout_seconds=TIMEOUT).state == shown


@pytest.mark.parametrize(
    ("state", "restarts", "silent_seconds", "scalable", "reason"),
    [
        (State.running, 0, 1.0, False, ""),
        (State.running, 3, 9.0, False, ""),
        (State.running, 0, 12.0, False, "no sign of life for 12 s"),
        (State.draining, 0, 1.0, False, ""),
        (State.starting, 0, 1.0, False, ""),
        (State.starting, 1, 1.0, False, "starts again"),
        (State.waiting, 1, 1.0, False, "waits for its start"),
        (State.gone, 0, 1.0, False, "has ended"),
        (State.done, 0, 1.0, False, "has ended"),
        (State.gone, 0, 1.0, True, ""),
        (State.dead, 0, 1.0, True, "has ended"),
        (State.failed, 0, 1.0, True, "has ended"),
    ],
)
def test_what_is_away_and_why(
    state: State, restarts: int, silent_seconds: float, scalable: bool, reason: str
) -> None:
    row = row_of(replace(AGENT, state=state, restarts=restarts))
    beat = Beat("agent-0", 1, State.running, 17, time.time())
    beat.now -= silent_seconds
    assert find_absence(row, beat, scalable=scalable) == reason
    beat.busy_seconds = 60.0
    busy = state == State.running
    assert find_absence(row, beat, scalable=scalable) == ("" if busy else reason)


def test_where_no_heartbeat_is_seen_a_row_that_is_silent_is_away() -> None:
    row = replace(row_of(AGENT), state=State.silent, age_seconds=40.0)
    assert find_absence(row, None, scalable=True) == "no sign of life for 40 s"


def test_two_rates_are_both_shown() -> None:
    reported = {"status": {"inserts_per_second": 5.0, "samples_per_second": 80.0}}
    row = row_of(ComponentStatus("replay-0", State.running, 0, 1.0, 0, None, ""), reported)
    assert row.work == "rows in 5.0/s, rows out 80/s"
