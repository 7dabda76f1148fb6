"""Machines join a tuning, work, leave and are lost; the folder of the tuning has everything."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.checkpoint import read_state
from session.folder import RunFolder
from tests.addons.tuning.runs.test_tune import weights
from tests.addons.tuning.runs.test_tune_pbt import FILE as PBT
from tests.addons.tuning.runs.test_tune_pbt import exploits
from tests.leftovers import names_folder
from tests.polling import until
from tests.runs.command import COMMAND, ROOT, Process
from tests.runs.network import HOST_ADDRESS, TwoMachines, find_obstacle

FILE = f"""
experiment: {ROOT}/configs/cartpole_ppo.yaml
space:
  learner_config.algo.learning_rate.start: {{loguniform: [1.0e-4, 1.0e-2]}}
session_config: {{evaluator: {{num: 0}}, stop: {{eval_return: null}}}}
tune:
  trials: 3
  min_episodes: 5
  stop: {{env_steps: 6000}}
  report_every: 2000
"""
LONG = "tune.stop.env_steps=30_000"
OWN = """
from surreal_like.algorithm.ppo import PPO


class Mine(PPO):
    pass
"""
PATIENT = "session_config.heartbeat.timeout=120"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Tuning:
    """A tuning that machines can join, and those that do.

    Args:
        path: folder for everything.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / "tuning"
        (path / "small.yaml").write_text(FILE)
        self.processes: list[Process] = []

    def start(self, *words: str, before: tuple[str, ...] = (), host: str = "127.0.0.1") -> Process:
        command = [*before, *COMMAND, "tune", "--host", host, "--folder", str(self.folder)]
        return self._start([*command, *words], "tune.txt")

    def join(self, name: str, *words: str, before: tuple[str, ...] = (), uses: int = 1) -> Process:
        """Starts a worker with a line of its own."""
        until(lambda: (self.folder / "addresses.json").is_file())
        said = self.path / f"{name}-line.txt"
        printed = Process(
            [*COMMAND, "join", "--print", str(self.folder), "--uses", str(uses)], said
        )
        assert printed.wait(60) == 0, printed.words
        line = re.findall(r"join (\S+) --token (\S+)", printed.words)[0]
        command = [*before, *COMMAND, "join", line[0], "--token", line[1]]
        folder = ("--folder", str(self.path / name))
        return self._start([*command, *folder, *words], f"{name}.txt")

    def _start(self, command: list[str], said: str) -> Process:
        self.processes.append(Process(command, self.path / said))
        return self.processes[-1]

    def trials(self) -> dict[str, Any]:
        entries = json.loads((self.folder / "tuning.json").read_text())["trials"]
        return {each["name"]: each for each in entries}

    def check_complete(self) -> None:
        """Checks that every trial has ended as planned, with all of its files here."""
        assert json.loads((self.folder / "result.json").read_text())["status"] == "stopped"
        for name, trial in self.trials().items():
            assert (trial["state"], trial["failures"]) == ("terminated", 0), trial
            run = RunFolder(self.folder / name)
            assert (run.read_result() or {})["status"] == "stopped"
            assert list(run.checkpoints.glob("learner/*/params.safetensors"))
            assert (run.logs / "learner.log").is_file()


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[Tuning]:
    made = Tuning(tmp_path)
    yield made
    for process in made.processes:
        process.end()
    names = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert not [name for name in names if names_folder(name, tmp_path)]
    for folder in (made.folder, *(tmp_path / name for name in ("one", "two"))):
        assert not RunFolder(folder).sockets.exists()


def test_trials_of_a_worker_learn_the_same_as_here(tuning: Tuning) -> None:
    alone = tuning.path / "alone"
    words = [*COMMAND, "tune", str(tuning.path / "small.yaml"), "--folder", str(alone)]
    here = Process(words, tuning.path / "alone.txt")
    assert here.wait(120) == 0, here.words
    tuner = tuning.start(str(tuning.path / "small.yaml"), "tune.slots=-1")
    until(lambda: "3 trials wait, no slot: join a machine" in tuner.words)
    wrong = tuning.join("two", "--agents", "2")
    assert wrong.wait(60) == 2, wrong.words
    assert wrong.words.endswith("is a tuning: give --slots N in place of --agents\n")
    worker = tuning.join("one", "--slots", "2")
    assert tuner.wait(120) == 0, tuner.words
    assert worker.wait(30) == 0, worker.words
    assert "joined a tuning as worker-1001: 2 slots" in worker.words
    tuning.check_complete()
    assert weights(tuning.folder) == weights(alone)
    for name in tuning.trials():
        ours, theirs, same = (
            RunFolder(path / name).read_config()
            for path in (tuning.folder, tuning.path / "one", alone)
        )
        # For trackers it is one run, wherever it goes on.
        assert (ours.run.id, ours.run.part) == (theirs.run.id, theirs.run.get("part", 1))
        for config in (ours, same):
            del config["run"], config.session_config["folder"]
            # The archive of the code does not move.
            config.recorded.pop("source_sha256", None)
        assert ours.to_dict() == same.to_dict()
    # A secret.
    assert "sl1-" not in (tuning.folder / "events.jsonl").read_text()


def test_trials_of_a_killed_worker_go_on_elsewhere(tuning: Tuning) -> None:
    tuner = tuning.start(str(tuning.path / "small.yaml"), LONG, "tune.slots=-1")
    first = tuning.join("one", "--slots", "3")
    progress = tuning.folder / "trial-001" / "progress.jsonl"
    until(progress.is_file)
    children = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not any(psutil.pid_exists(each.pid) for each in children))
    tuning.join("two", "--slots", "2")
    assert tuner.wait(200) == 0, tuner.words
    assert "worker-1000: lost: silent for 10 s" in tuner.words
    tuning.check_complete()
    steps = [json.loads(line)["env_steps"] for line in progress.read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps[-1] >= 30_000


def test_a_worker_that_gets_sigterm_gives_its_trials_back(tuning: Tuning) -> None:
    ours, theirs = (tuning.path / name / "mine.py" for name in ("ours", "theirs"))
    for file in (ours, theirs):
        file.parent.mkdir()
        file.write_text(OWN)
    words = (f"algorithm={ours}:Mine", LONG, "tune.slots=-1")
    tuner = tuning.start(str(tuning.path / "small.yaml"), *words)
    stranger = tuning.join("three")
    assert stranger.wait(60) == 2
    assert "give --algorithm FILE" in stranger.words
    own = ("--slots", "2", "--algorithm", str(theirs))
    first = tuning.join("one", *own)
    until((tuning.folder / "trial-001" / "progress.jsonl").is_file)
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(60) == 0, first.words
    assert "left the tuning" in first.words
    until(lambda: "no slot" in tuner.words)
    assert {each["state"] for each in tuning.trials().values()} == {"pending"}
    compared = 0
    for path in (tuning.path / "one").glob("trial-*/**/*"):
        below = path.relative_to(tuning.path / "one")
        if path.is_file() and not {
            "code",
            "alive",
            "addresses.json",
            "topology.json",
            "config.yaml",
        } & {*below.parts}:
            assert (tuning.folder / below).read_bytes() == path.read_bytes(), below
            compared += 1
    assert compared > 20
    tuning.join("two", *own)
    assert tuner.wait(200) == 0, tuner.words
    tuning.check_complete()
    for name in tuning.trials():
        run = RunFolder(tuning.folder / name)
        assert run.read_config().algorithm == f"{ours}:Mine"
        assert (run.code / "mine.py").read_text() == OWN


def test_an_engine_keeps_machines_at_a_tuning(tuning: Tuning) -> None:
    tuner = tuning.start(str(tuning.path / "small.yaml"), "tune.slots=-1")
    machines = tuning.join("one", "--slots", "1", "--on", "processes", "--machines", "2", uses=3)
    assert tuner.wait(120) == 0, tuner.words
    assert machines.wait(60) == 0, machines.words
    assert "machine-1: started" in machines.words
    assert "worker-1001: joined: 1 slot\n" in tuner.words
    tuning.check_complete()


def start_population(tuning: Tuning, *words: str) -> Process:
    (tuning.path / "pbt.yaml").write_text(PBT)
    return tuning.start(str(tuning.path / "pbt.yaml"), *words)


def test_exploits_at_a_worker_are_the_same_as_here(tuning: Tuning) -> None:
    tuner, alone = start_population(tuning, "tune.slots=-1"), tuning.path / "alone"
    words = [*COMMAND, "tune", str(tuning.path / "pbt.yaml"), "--folder", str(alone)]
    here = Process(words, tuning.path / "alone.txt")
    worker = tuning.join("one", "--slots", "3")
    assert tuner.wait(200) == 0, tuner.words
    assert worker.wait(30) == 0, worker.words
    assert here.wait(200) == 0, here.words
    tuning.check_complete()
    assert exploits(tuning.folder) == exploits(alone)
    assert weights(tuning.folder) == weights(alone)


def test_exploits_cross_machines(tuning: Tuning) -> None:
    # A trial that goes on at the other machine starts again there, so its episodes differ.
    tuner = start_population(tuning, "tune.slots=1")
    worker = tuning.join("one", "--slots", "2")
    assert tuner.wait(200) == 0, tuner.words
    assert worker.wait(30) == 0, worker.words
    tuning.check_complete()
    assert exploits(tuning.folder)
    for name, trial in tuning.trials().items():
        run = RunFolder(tuning.folder / name).read_config()["run"]
        assert run.get("generation", 0) == trial["generation"]
        if trial["generation"]:
            donor = tuning.folder / name / "checkpoints" / "donor"
            assert read_state(donor)["record"]


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    with TwoMachines() as made:
        yield made


@pytest.mark.root
def test_a_machine_is_killed_and_its_trials_go_on_at_the_other(
    tuning: Tuning, machines: TwoMachines
) -> None:
    words = (str(tuning.path / "small.yaml"), LONG, "tune.slots=1")
    tuner = tuning.start(*words, before=tuple(machines.host), host=HOST_ADDRESS)
    worker = tuning.join("one", "--slots", "2", before=tuple(machines.guest))
    theirs = ("trial-001", "trial-002")
    until(lambda: all((tuning.folder / each / "progress.jsonl").is_file() for each in theirs))
    worker.signal(signal.SIGKILL)
    assert tuner.wait(200) == 0, tuner.words
    assert "worker-1000: lost: silent for 10 s" in tuner.words
    tuning.check_complete()


@pytest.mark.root
def test_a_machine_that_was_cut_off_ends_its_old_trials_and_gets_new_ones(
    tuning: Tuning, machines: TwoMachines
) -> None:
    words = (str(tuning.path / "small.yaml"), LONG, "tune.slots=-1", PATIENT)
    tuner = tuning.start(*words, before=tuple(machines.host), host=HOST_ADDRESS)
    worker = tuning.join("one", "--slots", "2", before=tuple(machines.guest))
    until((tuning.folder / "trial-001" / "progress.jsonl").is_file)
    machines.lose(1.0)
    until(lambda: "worker-1000: lost: silent for 10 s" in tuner.words)
    assert {each["state"] for each in tuning.trials().values()} == {"pending"}
    machines.lose(0.0)
    assert tuner.wait(250) == 0, tuner.words
    assert worker.wait(60) == 0, worker.words
    tuning.check_complete()
