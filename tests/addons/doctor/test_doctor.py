"""``surreal-like doctor``: the page, the object, and the line in other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from session.folder import RunFolder
from tests.main.conftest import Command
from tests.session.made_run import made_line, made_run

LATENCY = {"step_seconds": 0.9, "act_seconds": 0.1, "to_replay_seconds": 0.2}
DROPPED = {"pushed": 100, "inserted": 50, "dropped": 50}
RESULT = {"status": "stopped", "reason": "budget of 20 seconds used"}


def made(path: Path, **fields: Any) -> RunFolder:
    lines = [made_line(steps, greedy=1.0, latency=LATENCY, **fields) for steps in (1000, 2000)]
    return made_run(path, lines, result=RESULT)


def test_the_page_has_stages_bottleneck_and_oddities(command: Command, tmp_path: Path) -> None:
    folder = made(tmp_path / "run", experience=DROPPED)
    said = command("doctor", str(folder))
    assert said.code == 0
    assert "  step        900 ms   in the environments of its agent\n" in said.out
    assert "  to replay   200 ms   from its agent until" in said.out
    assert "  learn        75 ms   for an update\n" in said.out
    assert "bottleneck: machine: batches come late" in said.out
    assert "odd: dropped rows: replay has refused rows\n  numbers   50 of 100 rows\n" in said.out


def test_as_json_it_has_the_same(command: Command, tmp_path: Path) -> None:
    folder = made(tmp_path / "run", experience=DROPPED)
    said = command("doctor", str(folder), "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert found["latency"] == LATENCY
    assert found["waiting_share"] == 0.25
    assert found["bottleneck"]["name"] == "machine"
    [odd] = found["odd"]
    assert odd["numbers"] == "50 of 100 rows"
    assert set(odd) == {"name", "meaning", "numbers", "setting"}


def test_of_a_run_without_a_line_it_says_that(command: Command, tmp_path: Path) -> None:
    said = command("doctor", str(made_run(tmp_path / "run")))
    assert said.code == 0
    assert "nothing to look at: no line of progress yet" in said.out


def test_status_has_its_line(command: Command, tmp_path: Path) -> None:
    said = command("status", str(made(tmp_path / "run")))
    assert "\ndoctor: machine: batches come late" in said.out
