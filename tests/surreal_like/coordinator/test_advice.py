"""When the coordinator gives no advice on the number of agents."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.component import Component, Topology
from session.process.heartbeat import Beat, State, write_beat
from surreal_like.coordinator.coordinator import RunCoordinator

KINDS = {"ps": "ps", "replay-0": "replay", "learner": "learner", "eval-0": "evaluator"}


class Coordinator(RunCoordinator):
    """One that learns, with an agent and what it can see of the other components."""

    learns = True
    _runs_alone = False

    def __init__(self, folder: RunFolder) -> None:
        topology = Topology(Component(name, kind, "main.any") for name, kind in KINDS.items())
        self._context: Any = SimpleNamespace(topology=topology, folder=folder)
        self._learners: Any = SimpleNamespace(lacks_shard=False)
        self.record: Any = SimpleNamespace(
            iterations=1, accounts=SimpleNamespace(counts=lambda sender: True)
        )
        self._sender_accounts = {"agent-0/1": {"status": {"version": 1.0}}}
        self._lacked = False


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return Coordinator(folder)


def beat(coordinator: Coordinator, name: str, state: State, age_seconds: float = 0.0) -> None:
    at = time.time() - age_seconds
    write_beat(coordinator._context.folder.alive, Beat(name, 1, state, 1, at))


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
    coordinator: Coordinator, name: str, state: State, age_seconds: float, counted: bool
) -> None:
    assert coordinator._count_agents() == 1
    beat(coordinator, name, state, age_seconds)
    assert coordinator._count_agents() == (1 if counted else None)
    # The waiting times of the next line are partly those of the absence.
    beat(coordinator, name, State.running)
    assert coordinator._count_agents() == (1 if counted else None)
    assert coordinator._count_agents() == 1


def test_where_no_folder_is_shared_the_connection_to_replay_counts(
    coordinator: Coordinator,
) -> None:
    coordinator._learners.lacks_shard = True
    assert coordinator._count_agents() is None


def test_machines_get_no_numbers_for_advice_without_a_counted_agent(
    coordinator: Coordinator,
) -> None:
    line = {"wall_seconds": 9.0, "waiting_share": 1.0, "senders_waiting_share": 0.0}
    report: Any = SimpleNamespace(line=line | {"wanted": {"agents": 1}})
    coordinator._report = report
    load = {"wall_seconds": 9.0, "learner_waits": 1.0, "senders_wait": 0.0}
    assert coordinator._ask_accounts().fields == {"load": load}
    report.line["wanted"] = {"agents": None}
    assert coordinator._ask_accounts().fields == {}
