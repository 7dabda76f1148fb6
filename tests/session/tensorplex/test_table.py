"""The table of components: newest heartbeat, lost after a silence, done after a goodbye."""

from typing import Any

import pytest

from session.tensorplex.metrics_server import ComponentTable
from session.wire import Identity


def beat(state: str = "running", incarnation: int = 1, **changes: Any) -> dict[str, Any]:
    record = {"state": state, "incarnation": incarnation, "pid": 9, "rss_bytes": 5, "status": {}}
    return record | changes


@pytest.fixture
def table() -> ComponentTable:
    return ComponentTable(timeout_seconds=30)


def state_of(table: ComponentTable, now: float) -> str:
    [row] = table.rows(now)
    return str(row["state"])


def test_row_has_what_the_heartbeat_said(table: ComponentTable) -> None:
    table.beat(Identity("ps"), beat(status={"fetches": 2}), now=1.0)
    table.beat(Identity("agent-0"), beat(incarnation=7), now=2.0)
    assert table.rows(3.5) == [
        {
            "name": "agent-0",
            "state": "running",
            "incarnation": 7,
            "age_seconds": 1.5,
            "rss_bytes": 5,
            "pid": 9,
            "status": {},
            "restarts": 0,
        },
        {
            "name": "ps",
            "state": "running",
            "incarnation": 1,
            "age_seconds": 2.5,
            "rss_bytes": 5,
            "pid": 9,
            "status": {"fetches": 2.0},
            "restarts": 0,
        },
    ]


@pytest.mark.parametrize(
    ("said", "seconds", "state"),
    [
        ("running", 30, "running"),
        ("running", 31, "silent"),
        ("draining", 31, "silent"),
        ("starting", 119, "starting"),
        ("starting", 121, "silent"),
        ("done", 1000, "done"),
        ("failed", 1000, "failed"),
    ],
)
def test_silence_makes_lost(table: ComponentTable, said: str, seconds: float, state: str) -> None:
    table.beat(Identity("agent-0"), beat(said), now=0.0)
    assert state_of(table, seconds) == state


def test_lost_component_comes_back(table: ComponentTable) -> None:
    table.beat(Identity("agent-0"), beat(), now=0.0)
    assert state_of(table, 100) == "silent"
    table.beat(Identity("agent-0"), beat(incarnation=2), now=101.0)
    assert state_of(table, 102) == "running"


def test_older_incarnation_is_ignored(table: ComponentTable) -> None:
    table.beat(Identity("agent-0"), beat(incarnation=2), now=0.0)
    table.beat(Identity("agent-0"), beat("done", incarnation=1), now=1.0)
    [row] = table.rows(1.0)
    assert (row["state"], row["incarnation"]) == ("running", 2)


def test_each_newer_incarnation_is_a_restart(table: ComponentTable) -> None:
    for incarnation in (3, 3, 5, 4, 5, 9):
        table.beat(Identity("ps"), beat(incarnation=incarnation), now=1.0)
    [row] = table.rows(1.0)
    assert row["restarts"] == 2
