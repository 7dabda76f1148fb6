"""What all launchers write: addresses, the files of a run, the end of its result."""

import json
import socket
from pathlib import Path

import pytest

from session.errors import NOTICE, UsageError
from session.folder import RunFolder
from session.launchers.instruction import Failure
from session.launchers.launcher import (
    Outcome,
    finish_result,
    forget_beats,
    free_ports,
    last_lines,
    make_addresses,
    write_run_files,
)
from session.process.component import Topology
from session.process.heartbeat import Beat, State, read_beats, write_beat
from session.wire import AddressBook
from surreal_like.coordinator.stop_rule import Verdict
from tests.session.launchers.parts import make_config, make_run, make_topology

ACTS = {"learner": "learn", "agent-0": "work"}
CONFIG = make_config(ACTS)
COMPONENTS = {"learner": {"restarts": 1, "exit_code": 0, "alive_seconds": 2.5}}


@pytest.fixture
def folder(run_folder: Path) -> RunFolder:
    return make_run(run_folder, CONFIG)


def test_addresses_of_a_run_include_its_supervisor(folder: RunFolder) -> None:
    topology = make_topology(CONFIG)
    ipc = make_addresses(topology, CONFIG, folder)
    assert list(ipc) == ["learner.control", "supervisor.control"]
    assert ipc["learner.control"].bind == f"ipc://{folder.sockets}/learner.control"
    tcp = make_addresses(topology, make_config(ACTS, transport="tcp"), folder)
    assert len({address.bind for address in tcp.values()}) == 2


def test_free_ports_are_free_and_all_different() -> None:
    ports = free_ports(f"e{i}" for i in range(50))
    assert len(set(ports.values())) == 50
    for port in ports.values():
        socket.create_server(("127.0.0.1", port)).close()


def test_the_files_of_a_run_say_what_was_launched(folder: RunFolder) -> None:
    topology = make_topology(CONFIG)
    addresses = make_addresses(topology, CONFIG, folder)
    write_run_files(folder, topology, addresses)
    data = json.loads(folder.topology.read_text())
    assert Topology.from_dict(data).components == topology.components
    assert data["components"][0]["command"].endswith(f" --name learner --folder {folder}")
    assert dict(AddressBook.load(folder.addresses)) == dict(addresses)


def test_beats_of_an_earlier_part_are_forgotten(folder: RunFolder) -> None:
    write_beat(folder.alive, Beat("agent-0", 1, State.running, 1, 1.0))
    forget_beats(folder)
    assert read_beats(folder.alive) == {}


def test_the_learners_result_is_kept_and_completed(folder: RunFolder) -> None:
    written = {
        "status": "stopped",
        "reason": "solved",
        "goal_met": True,
        "iterations": 9,
        "seed": 3,
    }
    folder.result.write_text(json.dumps(written))
    outcome = finish_result(folder, CONFIG, COMPONENTS)
    assert outcome == Outcome("stopped", "solved")
    assert folder.read_result() == {
        **written,
        "algorithm": "parts",
        "env_name": "parts",
        "components": COMPONENTS,
    }


@pytest.mark.parametrize("before", [None, {"status": "running", "goal_met": None, "iterations": 4}])
@pytest.mark.parametrize("interrupted", [True, False])
def test_without_a_result_of_the_learner_the_launcher_reports_the_end(
    folder: RunFolder, before: dict[str, object] | None, interrupted: bool
) -> None:
    if before is not None:
        folder.result.write_text(json.dumps(before))
    outcome = finish_result(folder, CONFIG, COMPONENTS, interrupted=interrupted)
    assert outcome.status == ("interrupted" if interrupted else "failed")
    result = dict(folder.read_result() or {})
    assert (result["status"], result["reason"]) == (outcome.status, outcome.reason)
    assert (result["goal_met"], result["seed"]) == (None, 0)
    assert result.get("iterations") == (before or {}).get("iterations")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        # Machines that have joined wait for the run, and its job begins again.
        (NOTICE, NOTICE),
        ("interrupted by the user", "interrupted before the learner could end the run"),
    ],
)
def test_a_notice_stays_one_where_the_learner_has_ended_before(
    folder: RunFolder, reason: str, expected: str
) -> None:
    folder.result.write_text(json.dumps({"status": "running"}))
    outcome = finish_result(folder, CONFIG, COMPONENTS, interrupted=True, reason=reason)
    assert (outcome.status, outcome.reason) == ("interrupted", expected)
    verdict = Verdict.of_result(folder.read_result())
    assert verdict.resumable == (reason == NOTICE)


def test_a_failure_outweighs_what_the_learner_wrote(folder: RunFolder) -> None:
    folder.result.write_text(json.dumps({"status": "stopped", "reason": "agent-0: boom"}))
    failure = Failure("agent-0", "boom", "Traceback ...")
    outcome = finish_result(folder, CONFIG, COMPONENTS, failure=failure, interrupted=True)
    assert outcome == Outcome("failed", "agent-0: boom", "Traceback ...")
    assert dict(folder.read_result() or {})["status"] == "failed"


def test_a_result_that_cannot_be_written_still_reports_the_end(folder: RunFolder) -> None:
    folder.result.mkdir()
    assert finish_result(folder, CONFIG, {}, interrupted=True).status == "interrupted"


def test_the_last_lines_are_those_of_log_and_standard_error(folder: RunFolder) -> None:
    (folder.logs / "agent-0.log").write_text("one\ntwo\nthree\n")
    (folder.logs / "agent-0.err").write_text("Traceback\nboom")
    (folder.logs / "ps.log").write_bytes(b"\xff\n")
    assert last_lines(folder, "agent-0", 2) == ["two", "three", "Traceback", "boom"]
    assert last_lines(folder, "ps", 5) == ["\ufffd"]
    for name in ("agent-1", "../config", "*", ""):
        with pytest.raises(UsageError, match="there are agent-0, ps"):
            last_lines(folder, name, 5)
