"""``surreal-like status``: the line of the wanted numbers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from session.folder import RunFolder
from session.process.heartbeat import Beat, State, write_beat
from tests.add_ons import needs
from tests.main.conftest import Command
from tests.session.made_run import made_line, made_run

WANTED = {"agents": 5, "reason": "learner waits 34 %, agents wait 2 %"}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that goes on."""
    folder = made_run(tmp_path / "run", [made_line(1000, wanted=WANTED)])
    write_beat(folder.alive, Beat("learner", 1, State.running, 1, time.time()))
    return folder


def test_a_run_that_goes_on_has_the_wanted_number_of_agents(
    command: Command, folder: RunFolder
) -> None:
    said = command("status", str(folder))
    assert "\nwanted: 5 agents (learner waits 34 %, agents wait 2 %)\n" in said.out


def test_a_run_that_is_over_wants_nothing(command: Command, folder: RunFolder) -> None:
    folder.result.write_text('{"status": "stopped"}')
    assert "wanted" not in command("status", str(folder)).out


@needs("gateway")
def test_gateways_are_counted_with_their_clients(command: Command, folder: RunFolder) -> None:
    status = {"sessions": 250.0}
    write_beat(folder.alive, Beat("gateway-0", 1, State.running, 1, time.time(), status=status))
    said = command("status", str(folder))
    assert "agents wait 2 %); 2 gateways (250 clients, 6 places free)\n" in said.out


@needs("doctor")
def test_more_agents_are_no_advice_while_replay_is_away(
    command: Command, folder: RunFolder
) -> None:
    write_beat(folder.alive, Beat("replay-0", 1, State.failed, 1, time.time()))
    said = command("status", str(folder)).out
    assert "wanted" not in said
    assert "missing part: nothing new is learned without it (replay-0 (has ended))" in said


@pytest.mark.parametrize("wanted", [None, {"agents": None, "reason": ""}])
def test_without_an_update_nothing_is_wanted_yet(
    command: Command, tmp_path: Path, wanted: object
) -> None:
    folder = made_run(tmp_path / "early", [made_line(1000, wanted=wanted)])
    write_beat(folder.alive, Beat("learner", 1, State.running, 1, time.time()))
    said = command("status", str(folder))
    assert said.code == 0
    assert "wanted" not in said.out
