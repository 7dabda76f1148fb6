"""When no advice is given on the number of agents."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.component import Component, Topology
from session.process.heartbeat import Beat, State, write_beat
from surreal_like.coordinator.component_reports import Monitor
from surreal_like.coordinator.coordinator import RunCoordinator
from tests.api.stage import Stage, experiment

KINDS = {"ps": "ps", "replay-0": "replay", "learner": "learner", "eval-0": "evaluator"}


class Seen(Monitor):
    """Sees an agent, and what it can of the other components."""

    def __init__(self, folder: RunFolder) -> None:
        topology = Topology(Component(name, kind, "main.any") for name, kind in KINDS.items())
        self.folder = folder
        clock = SimpleNamespace(now=lambda: 0.0)
        context: Any = SimpleNamespace(topology=topology, folder=folder, clock=clock)
        learners: Any = SimpleNamespace(lacks_shard=False)
        self.learners = learners
        record: Any = SimpleNamespace(accounts=SimpleNamespace(counts=lambda sender: True))
        super().__init__(context, record, learners)
        self._accounts: dict[str, Any] = {"agent-0/1": {"status": {"version": 1.0}}}


@pytest.fixture
def monitor(tmp_path: Path) -> Seen:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return Seen(folder)


def beat(monitor: Seen, name: str, state: State, age_seconds: float = 0.0) -> None:
    at = time.time() - age_seconds
    write_beat(monitor.folder.alive, Beat(name, 1, state, 1, at))


@pytest.mark.parametrize(
    ("name", "state", "age_seconds", "counted"),
    [
        ("replay-0", State.running, 0.0, True),
        ("replay-0", State.running, 20.0, False),
        ("replay-0", State.starting, 0.0, False),
        ("replay-0", State.done, 0.0, False),
        ("ps", State.failed, 0.0, False),
        ("eval-0", State.failed, 0.0, True),
    ],
)
def test_while_replay_or_the_parameter_server_is_away_no_agents_are_counted(
    monitor: Seen, name: str, state: State, age_seconds: float, counted: bool
) -> None:
    assert monitor.count_agents() == 1
    beat(monitor, name, state, age_seconds)
    assert monitor.count_agents() == (1 if counted else None)
    # The waiting times of the next line are partly those of the absence.
    beat(monitor, name, State.running)
    assert monitor.count_agents() == (1 if counted else None)
    assert monitor.count_agents() == 1


def test_where_no_folder_is_shared_the_connection_to_replay_counts(
    monitor: Seen,
) -> None:
    monitor.learners.lacks_shard = True
    assert monitor.count_agents() is None


def test_agents_of_machines_that_have_joined_are_counted_apart(monitor: Seen) -> None:
    for name in ("agent-0/2", "agent-7/1", "agent-1000/1", "agent-1001/1"):
        monitor._accounts[name] = {"status": {"version": 1.0}}
    # The accounts of those that have left, or were followed by another process, do not count.
    monitor._accounts["agent-1002/1"] = {"status": {"version": 1.0}, "final": True}
    assert (monitor.count_agents(), monitor.guests) == (4, 2)


def test_the_heartbeat_has_the_number_without_joined_agents_too(tmp_path: Path) -> None:
    stage = Stage(experiment(), tmp_path / "run")
    try:
        for name in ("ps", "replay-0", "learner"):
            stage.start(name)
        run: RunCoordinator = stage.service("learner").coordinator
        run.monitor.guests = 2
        for agents, own in ((5, 3.0), (1, 0.0), (None, None)):
            run._report.line["wanted"] = {"agents": agents, "reason": ""}
            status = run.status()
            assert (status.get("wanted"), status.get("wanted_own")) == (agents, own)
    finally:
        stage.close()


def test_machines_get_no_numbers_for_advice_without_a_counted_agent(
    monitor: Seen,
) -> None:
    line = {"wall_seconds": 9.0, "waiting_share": 1.0, "senders_waiting_share": 0.0}
    monitor.on_line(line | {"wanted": {"agents": 1}})
    load = {"wall_seconds": 9.0, "learner_waits": 1.0, "senders_wait": 0.0}
    assert monitor._ask_accounts().fields == {"load": load}
    monitor.on_line(line | {"wanted": {"agents": None}})
    assert monitor._ask_accounts().fields == {}
