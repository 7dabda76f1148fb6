"""The edge of a tuning, with stand-ins for its processes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.config import Config
from session.errors import START_AGAIN
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.process.component import Component
from session.process.heartbeat import Beat, State, write_beat
from surreal_like.addons.tuning import record
from surreal_like.addons.tuning import tuner as module
from surreal_like.addons.tuning.handle import Reported
from surreal_like.addons.tuning.placement import HERE
from surreal_like.addons.tuning.reporter import MEMORY_BYTES
from surreal_like.addons.tuning.slots import Slots
from surreal_like.addons.tuning.state import Trial
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.addons.tuning.tuner import Tuner
from surreal_like.addons.tuning.tuning_state_machine import Tuning
from surreal_like.run.observer import RunObserver
from tests.session.made_run import made_line

FILE = """
algorithm: dqn
env_config: {env_name: "toy:chain"}
tune: {trials: 2, scheduler: asha, asha: {grace_period: 10}, stop: {env_steps: 100}}
"""
SLOTS = Slots(2, 9, 1.0, 10**9, 10**8, 10**10)
LINE = {"episodes": 3, "train": {"mean_return_100": 1.0}}


class Processes:
    """Starts nothing."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.signals: list[tuple[str, int]] = []

    def start(self, component: Component) -> None:
        self.started.append(component.name)

    def pid(self, name: str) -> int:
        return 1 if name in self.started else 0

    def signal(self, name: str, number: int) -> None:
        self.signals.append((name, number))

    def close(self) -> None:
        pass

    def remove_sockets_at_end(self, run: object) -> None:
        pass


class Messages(RunObserver):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_message(self, text: str) -> None:
        self.texts.append(text)


class Rig:
    """A tuner of two trials that have no processes."""

    def __init__(self, path: Path, stack: ExitStack, *words: str, seconds: float = 0.0) -> None:
        (path / "mine.yaml").write_text(FILE)
        file = read_tune_file(path / "mine.yaml", words)
        self.folder = RunFolder(path / "tuning")
        self.folder.create()
        trials = [Trial(f"trial-{number:03}", {}) for number in range(2)]
        self.tuning = Tuning(trials, file.scheduler(), slots=2)
        self.processes, self.watch = Processes(), Messages()
        servers = cast(Any, self.processes)
        self.tuner = Tuner(
            file, self.folder, self.tuning, servers, self.watch, SLOTS, seconds_before=seconds
        )
        stack.callback(self.tuner.close)

    def begin(self) -> None:
        self.tuner._obey(self.tuning.choose(time.monotonic()))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    monkeypatch.setattr(module, "Processes", lambda folder, servers: servers)
    with ExitStack() as stack:
        yield partial(Rig, tmp_path, stack)


@pytest.fixture
def rig(made: Callable[..., Rig]) -> Rig:
    return made()


def test_the_experiment_is_in_the_folder(rig: Rig) -> None:
    config = Config.load_file(rig.folder.path / "experiment.yaml")
    assert config.to_dict() == {"algorithm": "dqn", "env_config": {"env_name": "toy:chain"}}


@pytest.mark.parametrize("scored", [False, True])
def test_the_first_report_without_a_score_is_shown(rig: Rig, scored: bool) -> None:
    rig.begin()
    reports = [Reported(number, (1, 1, 0), 10.0, LINE) for number in (1, 0)]
    if scored:
        # After an exploit, a trial has no new score for a while.
        rig.tuning.trials[1].score = 9.0

    class Control:
        receive: Callable[[], Any] = staticmethod(lambda: reports.pop(0) if reports else None)
        answer: Callable[[Any], None] = staticmethod(lambda answer: None)

    rig.tuner._control = cast(Any, Control())
    rig.tuner._read_reports()
    assert rig.watch.texts == [
        f"trial-00{'0' if scored else '1'} has no score: train.mean_return_100 is 1 after 3 "
        "episodes, fewer than tune.min_episodes, 20"
    ]


def test_reports_that_arrive_together_are_on_disk_once_before_their_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.begin()
    reports = [Reported(number, (1, 1, 0), 5.0, LINE) for number in (1, 0)]
    done: list[str] = []

    class Control:
        receive: Callable[[], Any] = staticmethod(lambda: reports.pop(0) if reports else None)
        answer: Callable[[Any], None] = staticmethod(lambda it: done.append(f"answer {it.trial}"))

    def write(path: Path, text: str) -> None:
        done.append(f"{path.name}: {[trial['time'] for trial in json.loads(text)['trials']]}")

    rig.tuner._control = cast(Any, Control())
    monkeypatch.setattr(record, "write_atomically", write)
    rig.tuner._read_reports()
    assert done == ["tuning.json: [5.0, 5.0]", "answer 1", "answer 0"]


def test_residents_follow_the_memory_in_heartbeats(rig: Rig) -> None:
    rig.begin()
    assert rig.tuning.placement.places[HERE].max_resident == 2
    for name, used in (("trial-000", 2e9), ("trial-001", 1e9)):
        beat = Beat(name, 1, State.running, 1, time.time())
        beat.status = {MEMORY_BYTES: used}
        write_beat(rig.folder.alive, beat)
    rig.tuner._read_beats()
    assert (rig.tuning.placement.places[HERE].max_resident, rig.processes.signals) == (4, [])


def test_a_trial_whose_settings_are_not_on_disk_is_not_started(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Search:
        ask: Callable[[int], Any] = staticmethod(lambda number: {"a.b": 1})

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    rig.tuner._search = cast(Any, Search())
    with monkeypatch.context() as patch:
        patch.setattr(record, "write_atomically", full)
        rig.begin()
    assert rig.processes.started == []
    assert [(each.state, each.failures) for each in rig.tuning.trials] == [("pending", 1)] * 2
    assert rig.watch.texts == ["tuning.json cannot be written: No space left on device"]
    rig.begin()
    assert rig.processes.started == ["trial-000", "trial-001"]
    assert '"a.b"' in (rig.folder.path / "tuning.json").read_text()


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (9_000, "the disk of {0} is full: free some space, then resume; ended with exit code 1"),
        (10**9, "ended with exit code 1"),
    ],
)
def test_a_trial_that_has_died_for_lack_of_room_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    rig.begin()
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr("surreal_like.run.folder.shutil.disk_usage", lambda path: usage)
    # On a full disk its last words are lost.
    rig.tuner._obey(rig.tuner._on_exit(Exit("trial-001", 1, "ended with exit code 1")))
    trial = rig.tuning.trials[1]
    assert (trial.state, trial.reason) == ("pending", said.format(rig.folder))


def ended(rig: Rig, name: str, goal_met: bool | None) -> None:
    """Ends the process of a trial as its run does."""
    run = RunFolder(rig.folder.path / name)
    run.path.mkdir()
    run.result.write_text(json.dumps({"status": "stopped", "goal_met": goal_met, "reason": "x"}))
    line = made_line(60, training=4.0) | {"episodes": 30, "time": {"env_steps": 60.0}}
    run.progress.write_text(json.dumps(line) + "\n")
    exit_code = 3 if goal_met is False else 0
    rig.tuner._obey(rig.tuner._on_exit(Exit(name, exit_code, "")))


@pytest.mark.parametrize(
    ("wanted", "goal_met", "ending"),
    [
        (True, True, "trial-001 has met its goal"),
        (True, False, ""),
        (True, None, ""),
        (False, True, ""),
    ],
)
def test_a_tuning_ends_at_the_first_goal_that_is_met(
    made: Callable[..., Rig], wanted: bool, goal_met: bool | None, ending: str
) -> None:
    rig = made(f"tune.stop_at_goal={str(wanted).lower()}")
    rig.begin()
    ended(rig, "trial-001", goal_met)
    assert rig.tuning.ending == ending
    assert rig.processes.signals == [("trial-000", signal.SIGINT)] * bool(ending)


@pytest.mark.parametrize(
    ("before", "budget", "ending"),
    [
        (50.0, "60", ""),
        (61.0, "60", "budget of 60 seconds used"),
        (61.0, "null", ""),
    ],
)
def test_a_tuning_has_a_budget_of_seconds(
    made: Callable[..., Rig], before: float, budget: str, ending: str
) -> None:
    rig = made(f"tune.seconds={budget}", seconds=before)
    rig.begin()
    rig.tuner._check_budget()
    assert rig.tuning.ending == ending
    assert len(rig.processes.signals) == 2 * bool(ending)
    assert json.loads((rig.folder.path / "tuning.json").read_text())["seconds"] >= before
    assert rig.tuner._record.write_result()["seconds"] >= before


def test_a_trial_that_ends_with_its_tuning_keeps_its_last_score(made: Callable[..., Rig]) -> None:
    rig = made("tune.seconds=1", seconds=2.0)
    rig.begin()
    rig.tuner._check_budget()
    ended(rig, "trial-000", None)
    run = RunFolder(rig.folder.path / "trial-001")
    run.path.mkdir()
    line = made_line(80, training=7.0) | {"episodes": 30, "time": {"env_steps": 80.0}}
    run.progress.write_text(json.dumps(line) + "\n")
    rig.tuner._obey(rig.tuner._on_exit(Exit("trial-001", START_AGAIN, "")))
    assert rig.tuning.over
    assert [str(each.state) for each in rig.tuning.trials] == ["terminated", "paused"]
    assert [(each.score, each.time) for each in rig.tuning.trials] == [(4.0, 60.0), (7.0, 80.0)]
    found = rig.tuner._record.write_result()
    assert (found["status"], found["reason"]) == ("stopped", "budget of 1 seconds used")
    assert found["best"]["trial"] == "trial-001"
