"""Commands that take the folder of a tuning in the place of a run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from main.cli.runs import find_run, find_runs
from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from session.process.heartbeat import Beat, State, write_beat
from session.wire import AddressBook
from surreal_like.addons.tuning import handle
from surreal_like.addons.tuning.reporter import CONTROL
from tests.main.conftest import Command

FOLDER = Path("runs/mine")
SCORES = (1.0, 3.0, None, 9.0)
STATES = ("terminated", "terminated", "pending", "error")


def trial(number: int) -> dict[str, Any]:
    return {
        "name": f"trial-{number:03}",
        "settings": {"learner_config.algo.gamma": 0.9},
        "state": STATES[number],
        "time": 400.0 * number,
        "score": SCORES[number],
        "best_score": SCORES[number],
        "generation": 1 if number == 1 else 0,
        "parent": "trial-000" if number == 1 else "",
        "failures": 0,
        "reason": "no env" if STATES[number] == "error" else "",
        "cpu_seconds": 1.0,
    }


@pytest.fixture
def tuning(command: Command) -> Path:
    """A tuning that was cut off, without runs."""
    FOLDER.mkdir(parents=True)
    given = Config.load_file("small.yaml") | {"tune": {"trials": 4, "stop": {"env_steps": 400}}}
    Config(given).dump_file(FOLDER / "tune.yaml")
    state = {"format": 1, "trials": list(map(trial, range(4))), "scheduler": {}}
    (FOLDER / "tuning.json").write_text(json.dumps(state))
    event = {"time": 1e9, "trial": "trial-001", "event": "trial", "detail": "pending -> running"}
    (FOLDER / "events.jsonl").write_text(json.dumps(event) + "\n")
    return FOLDER


def test_status(command: Command, tuning: Path) -> None:
    said = command("status", "mine")
    assert said.code == 0, said.err
    head, best, *table = said.out.splitlines()
    assert head == "tuning runs/mine: cut off, 2 terminated, 1 pending, 1 error"
    assert best == "best: trial-001, score 3.0"
    assert table.pop(0).endswith("surreal-like tune --resume --retry-errors --folder runs/mine")
    assert [line.split()[:2] for line in table[2:]] == [
        [f"trial-{number:03}", state] for number, state in enumerate(STATES)
    ]
    assert "1 <- trial-000" in table[3]
    found = json.loads(command("status", "latest", "--json").out)
    assert found["best"] == {"trial": "trial-001", "score": 3.0}
    assert found["trials"]["trial-003"]["reason"] == "no env"


def test_status_names_the_machines_that_get_no_trials(command: Command, tuning: Path) -> None:
    state = json.loads((tuning / "tuning.json").read_text())
    reason = "3 failures in a row, the last: trial-000: no driver"
    state["unfit"] = {"worker-1000": reason}
    (tuning / "tuning.json").write_text(json.dumps(state))
    said = command("status", "mine").out
    assert f"worker-1000 gets no trials any more: {reason}" in said.splitlines()


@pytest.mark.parametrize(
    ("held", "result", "head", "resumes"),
    [
        (False, None, "cut off, 2 cut off, 1 terminated, 1 pending", True),
        (False, {"status": "interrupted"}, "interrupted, 2 cut off, 1 terminated, 1 pending", True),
        (True, None, "running, 2 running, 1 terminated, 1 pending", False),
    ],
)
def test_the_status_of_a_tuning_whose_tuner_was_killed(
    command: Command, tuning: Path, held: bool, result: Any, head: str, resumes: bool
) -> None:
    state = json.loads((tuning / "tuning.json").read_text())
    names = ("running", "running", "terminated", "pending")
    for each, name in zip(state["trials"], names, strict=True):
        each["state"] = name
    (tuning / "tuning.json").write_text(json.dumps(state))
    folder = RunFolder(tuning)
    # Their processes have ended with the tuner.
    for number in range(2):
        write_beat(folder.alive, Beat(f"trial-00{number}", 1, State.done, 1, 1e9))
    if result is not None:
        folder.result.write_text(json.dumps(result))
    if held:
        folder.lock()
    try:
        said = command("status", "mine").out
    finally:
        folder.unlock()
    assert said.splitlines()[0] == f"tuning runs/mine: {head}"
    assert ("\nwanted: 3 slots (1 pending, 2 running)\n" in said) == held
    assert ("surreal-like tune --resume --folder runs/mine\n" in said) == resumes


def test_a_complete_tuning_has_nothing_to_resume(command: Command, tuning: Path) -> None:
    state = json.loads((tuning / "tuning.json").read_text())
    for each in state["trials"]:
        each["state"] = "terminated"
    (tuning / "tuning.json").write_text(json.dumps(state))
    (tuning / "result.json").write_text(json.dumps({"status": "stopped"}))
    assert "--resume" not in command("status", "mine").out


def test_the_list_has_one_row_for_a_tuning(command: Command, tuning: Path) -> None:
    (row,) = json.loads(command("list", "runs", "--json").out)
    assert (row["run"], row["launcher"], row["best_return"]) == ("mine", "tuning", 3.0)
    assert (row["algorithm"], row["environment"]) == ("dqn", "toy:chain")
    assert row["state"] == "cut off: 2 terminated, 1 pending, 1 error"
    assert "mine" in command("list", "runs").out
    (tuning / "tuning.json").write_text("[")
    assert json.loads(command("list", "runs", "--json").out)[0]["state"] == "damaged"


def test_logs_are_events(command: Command, tuning: Path) -> None:
    (line,) = command("logs", "mine").out.splitlines()
    assert line.endswith("INFO     trial-001: pending -> running")
    assert command("logs", "mine", "--level", "warning").out == ""
    said = command("logs", "mine", "--component", "trial-9")
    assert (said.code, "has no trial 'trial-9'" in said.err) == (2, True)


def test_commands_for_components_need_a_trial(command: Command, tuning: Path) -> None:
    for words in (("restart", "mine", "learner"), ("scale", "mine", "agents=2")):
        said = command(*words)
        assert (said.code, "name one of its trials" in said.err) == (2, True)
    with pytest.raises(UsageError, match="runs/mine is a tuning"):
        find_run("latest")


def test_a_tuning_that_does_not_run_cannot_be_stopped(command: Command, tuning: Path) -> None:
    said = command("stop", "mine")
    assert said.code == 2
    assert "to go on with it: surreal-like tune --resume --folder runs/mine" in said.err


def test_a_tuning_that_does_not_answer(
    command: Command, tuning: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tuning)
    folder.addresses.write_text(AddressBook.ipc([CONTROL], folder.sockets).dump())
    monkeypatch.setattr(handle, "_ANSWER_SECONDS", 0.05)
    folder.lock()
    try:
        said = command("stop", "mine")
    finally:
        folder.unlock()
    assert (said.code, "tuning runs/mine takes no commands" in said.err) == (2, True)


@pytest.mark.slow
def test_the_policy_of_a_tuning_is_that_of_its_best_trial(
    command: Command, tuning: Path, quick: None
) -> None:
    run = tuning / "trial-001"
    assert command("train", "small.yaml", "--on", "serial", "--folder", str(run)).code in (0, 3)
    assert [each.path for each in find_runs("mine")] == [run]
    assert [each.path for each in find_runs("runs/min*")] == [run]
    words = ("evaluate", "mine", "--episodes", "2")
    said = command(*words)
    assert said.code == 0, said.err
    assert said.err == "best trial of tuning runs/mine: trial-001\n"
    # The parameters of the end were evaluated.
    assert "checkpoint best of runs/mine/trial-001" in said.out
    # A trial without evaluations has no best checkpoint.
    shutil.rmtree(run / "checkpoints" / "best")
    assert re.search(r"checkpoint \d+ of runs/mine/trial-001", command(*words).out)


def test_without_a_score_there_is_no_best_trial(command: Command, tuning: Path) -> None:
    state = json.loads((tuning / "tuning.json").read_text())
    for each in state["trials"]:
        each["score"] = None
    (tuning / "tuning.json").write_text(json.dumps(state))
    said = command("play", "mine")
    assert (said.code, "no trial of tuning runs/mine has a score" in said.err) == (2, True)
