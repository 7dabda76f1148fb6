"""Machines that send wrong things, beside an honest one: the tuning ends with its true results."""

from __future__ import annotations

import json
import math
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from session.config.merge import with_settings
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.wire import AddressBook, Message
from surreal_like.run.observer import RunObserver
from surreal_like.tuning import tuner as module
from surreal_like.tuning import workers
from surreal_like.tuning.scheduler import MedianStopping
from surreal_like.tuning.state import Trial, TrialState
from surreal_like.tuning.trial import read_tuning
from surreal_like.tuning.trial_files import is_result
from surreal_like.tuning.tune_file import read_tune_file
from surreal_like.tuning.tuner import Tuner
from surreal_like.tuning.tuning import Tuning
from surreal_like.tuning.workers import REQUESTS, WORKERS, Host
from tests.polling import until
from tests.session.made_run import made_line
from tests.surreal_like.agent.rig import make_config
from tests.surreal_like.tuning.test_tuner import Processes
from tests.surreal_like.tuning.test_tuner import Rig as TunerRig
from tests.surreal_like.tuning.test_workers import BEAT, POLL, Machine, join, send

FILE = """
algorithm: dqn
env_config: {env_name: "toy:chain"}
tune: {trials: 3, slots: -1, min_episodes: 1, stop: {env_steps: 100}, report_every: 50}
"""
REST = 1.0


class NoProcesses(Processes):
    """Starts nothing here, so that nothing ends here."""

    def poll(self) -> list[Exit]:
        return []

    def wait_on(self) -> list[Any]:
        return []


class Rig:
    """A tuner of three trials with real sockets, in a thread of its own."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path, self.folder = path, RunFolder(path / "tuning")
        (path / "mine.yaml").write_text(FILE)
        file, config = read_tune_file(path / "mine.yaml"), make_config()
        self.folder.create()
        trials = [Trial(f"trial-{n:03}", {"session_config.seed": n}) for n in range(3)]
        self.tuning = Tuning(trials, MedianStopping(0.0), slots=0, max_failures=2)
        host = Host("127.0.0.1", lambda number, settings: with_settings(config, settings))
        servers = cast(Any, NoProcesses())
        self.tuner = Tuner(file, self.folder, self.tuning, servers, RunObserver(), host=host)
        self.addresses = AddressBook({WORKERS: self.tuner._wire.addresses[WORKERS]})
        self.found: dict[str, Any] = {}
        self.error = ""
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        stack.callback(self._end)
        self.stack = stack

    def _run(self) -> None:
        interrupts = SimpleNamespace(count=0)
        try:
            self.found = self.tuner.run(cast(Any, interrupts))
        except Exception:  # noqa: BLE001 - the test shows it
            self.error = traceback.format_exc()
        finally:
            self.tuner.close()

    def _end(self) -> None:
        self.tuner._control.stops = True
        self.thread.join(30)

    def step(self) -> None:
        assert not self.error, self.error

    def machine(self, name: str) -> Machine:
        return join(self, name, (name,))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(module, "Processes", lambda folder, servers: servers)
    monkeypatch.setattr(workers, "_SILENT_SECONDS", 2.0)
    monkeypatch.setattr(workers, "_HELD_SECONDS", 0.1)
    with ExitStack() as stack:
        yield Rig(tmp_path, stack)


WRONG: tuple[Any, ...] = (None, 5, -1, 1.5, True, "x", "x" * 70_000, [], [[]], {}, {"x": 1})
WRONG += (math.nan, math.inf, 1e300, b"x")
CHECKSUM = "0" * 32
ENTRY = {"bytes": 1, "blake2b": CHECKSUM, "blocks": [CHECKSUM]}
RIGHT: Mapping[str, Mapping[str, Any]] = {
    "poll": POLL | {"beats": {"trial-000": BEAT}},
    "fetch": {},
    "get": {"block": CHECKSUM},
    "files": {"files": {"result.json": ENTRY}, "late": True},
    "put": {"block": CHECKSUM},
    "report": {"incarnation": 1, "number": 1, "step": 0, "time": 1.0, "line": made_line(10)},
    "ended": {"exit_code": 1, "error": ""},
}


def variants(value: Any, wrong: Sequence[Any] = WRONG) -> Iterator[Any]:
    """Yields a value with one of its parts missing, or replaced by another."""
    yield from wrong
    for key in value if isinstance(value, dict) else ():
        yield {name: each for name, each in value.items() if name != key}
        for other in variants(value[key], wrong):
            yield {**value, key: other}


def admitted(
    kind: str, right: Mapping[str, Any], arrays: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the messages with one wrong part that the schema admits; it refuses most."""
    found, schema = [], REQUESTS[kind]
    for name in right:
        lacks = {field: value for field, value in right.items() if field != name}
        assert schema.complaint(Message(kind, lacks, arrays)), (kind, name)
        given = ({**right, name: value} for value in variants(right[name]))
        found += [each for each in given if not schema.complaint(Message(kind, each, arrays))]
    return found


def test_no_field_of_a_message_ends_the_tuner(rig: Rig) -> None:
    machine = rig.machine("worker-1000")
    began = machine.get_trial()
    for kind, fields in RIGHT.items():
        right = {**({} if kind == "poll" else began), **fields}
        arrays = {"data": np.zeros(3, np.uint8)} if kind == "put" else {}
        for message in admitted(kind, right, arrays)[:50]:
            machine.dealer.send(kind, message, arrays)
        machine.poll()
    assert rig.thread.is_alive()


RESULT = {"status": "stopped", "goal_met": None, "reason": "x", "env_steps": 100, "iterations": 5}
STEPS = {"time": {"env_steps": 60.0}, "episodes_since_load": 30, "metrics": {"a": {"mean": 1.0}}}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TunerRig]:
    monkeypatch.setattr(module, "Processes", lambda folder, servers: servers)
    with ExitStack() as stack:
        yield TunerRig(tmp_path, stack)


def test_no_field_of_a_file_of_a_trial_ends_the_tuner(alone: TunerRig) -> None:
    rig = alone
    rig.begin()
    folder = RunFolder(rig.folder.path / "trial-001")
    # A folder in the place of the tuner's own event file.
    (folder.tensorboard / "events.out.tfevents.1.tuner.1" / "x").mkdir(parents=True)
    line = made_line(60, training=4.0, greedy=2.0) | STEPS
    for path, right in ((folder.progress, line), (folder.result, RESULT)):
        for wrong in variants(right, (None, -1, True, "\x1b[2J", [[]], {"x": 1}, 1e300, 10**400)):
            folder.progress.write_text(json.dumps(line) + "\n")
            folder.result.write_text(json.dumps(RESULT))
            path.write_text(json.dumps(wrong, default=str) + "\n")
            trial = rig.tuning.trials[1]
            trial.state, trial.score, trial.time = TrialState.running, None, 0.0
            rig.tuning.children[1].start(0.0)
            rig.tuner._obey(rig.tuner._on_exit(Exit("trial-001", 0, "")))
            assert trial.state == "terminated"
            assert trial.score is None or abs(trial.score) <= 1e150
            read_tuning(rig.folder.path)
    assert math.isfinite(rig.tuner._write_result()["trials"]["trial-001"]["time"])


def misbehave(machine: Machine, codes: Iterator[int]) -> None:
    """Takes trials, sends wrong things about them, and says that they have ended."""
    for name, each in machine.poll(slots=2, max_resident=2).items():
        began = {"trial": name, "start": each["start"]}
        wrong_lines: tuple[Any, ...] = (5, None, [], made_line(10) | {"episodes": "3"})
        for line in wrong_lines:
            wrong = {**began, **RIGHT["report"], "line": line}
            assert machine.ask("report", wrong).kind == "refused"
        wrong = {**began, "files": {"checkpoints/learner/1/state.json": ENTRY}, "late": False}
        machine.ask("files", wrong)
        machine.ask("ended", {**began, "exit_code": next(codes), "error": "\x1b[2J"})


def work(machine: Machine, path: Path) -> int:
    """Does what it is given, and returns how many trials: the score of trial k is k + 1."""
    given = machine.poll(slots=3, max_resident=3)
    for name, each in given.items():
        began = {"trial": name, "start": each["start"]}
        run = RunFolder(path / name)
        run.path.mkdir(parents=True, exist_ok=True)
        line = made_line(100, training=each["number"] + 1.0) | STEPS
        run.progress.write_text(json.dumps(line) + "\n")
        run.result.write_text(json.dumps(RESULT))
        assert send(machine, began, run, is_result).fields["blocks"] == []
        assert machine.ask("ended", {**began, "exit_code": 0, "error": ""}).kind == "noted"
    return len(given)


def test_beside_a_hostile_machine_the_tuning_ends_with_its_true_results(rig: Rig) -> None:
    hostile, codes = rig.machine("worker-1000"), cycle((0, 70, 2, 3, 1, 75))
    until(lambda: "worker-1000" in rig.tuning.unfit, step=lambda: misbehave(hostile, codes))
    assert [str(each.state) for each in rig.tuning.trials] == ["pending"] * 3
    honest = rig.machine("worker-1001")
    done = 0
    while done < 3:
        misbehave(hostile, codes)
        done += work(honest, rig.path / "theirs")
    until(lambda: rig.found)
    assert (rig.found["status"], rig.found["best"]["trial"]) == ("stopped", "trial-002")
    trials = rig.found["trials"].values()
    assert [(each["state"], each["score"]) for each in trials] == [
        ("terminated", 1.0),
        ("terminated", 2.0),
        ("terminated", 3.0),
    ]
    events = rig.folder.events.read_text()
    assert "gets no trials any more" in events
    assert "\\u001b" not in events
