"""Tunings as a user starts them: whole, killed and resumed, with trials that cannot run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.folder import RunFolder
from tests.leftovers import names_folder
from tests.polling import until
from tests.runs.command import COMMAND, ROOT, Process

FILE = f"""
experiment: {ROOT}/configs/cartpole_ppo.yaml
space:
  learner_config.algo.learning_rate.start: {{loguniform: [1.0e-4, 1.0e-2]}}
session_config: {{evaluator: {{num: 0}}, stop: {{eval_return: null}}}}
tune:
  trials: 3
  min_episodes: 5
  stop: {{env_steps: 6000}}
  scheduler: asha
  asha: {{grace_period: 1000}}
"""
pytestmark = pytest.mark.slow
SHORT = ("tune.stop.env_steps=3000", "tune.report_every=1000")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(FILE)
    return tmp_path / "small.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "tuning"
    names = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert not [name for name in names if names_folder(name, tmp_path)]
    assert not RunFolder(tmp_path / "tuning").sockets.exists()


def start(folder: Path, *words: str) -> Process:
    return Process([*COMMAND, "tune", "--folder", str(folder), *words], folder.parent / "said.txt")


def ended(process: Process, code: int) -> str:
    assert process.wait(100) == code, process.words
    return process.words


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def trials(folder: Path) -> dict[str, Any]:
    return {each["name"]: each for each in read(folder / "tuning.json")["trials"]}


def reports(trial: Path) -> list[int]:
    lines = [json.loads(line) for line in (trial / "progress.jsonl").read_text().splitlines()]
    return [line["report"] for line in lines if "report" in line]


def weights(folder: Path) -> dict[str, bytes]:
    """Returns trial -> newest parameters."""
    found = {}
    for trial in sorted(folder.glob("trial-*")):
        files = trial.glob("checkpoints/learner/*/params.safetensors")
        found[trial.name] = max(files, key=lambda each: int(each.parent.name)).read_bytes()
    return found


@pytest.mark.timeout(250)
def test_a_tuning_is_the_same_with_one_and_two_slots(file: Path, tmp_path: Path) -> None:
    learned = []
    for slots in (1, 2):
        folder = tmp_path / f"slots-{slots}"
        words = (str(file), f"tune.slots={slots}", "tune.scheduler=fifo", *SHORT)
        ended(start(folder, *words), 0)
        result = read(folder / "result.json")
        assert result["status"] == "stopped"
        assert result["best"]["trial"] in trials(folder)
        for name, trial in trials(folder).items():
            assert (trial["state"], trial["failures"]) == ("terminated", 0)
            assert read(folder / name / "result.json")["env_steps"] >= 3000
            assert reports(folder / name)
        learned.append(weights(folder))
    assert learned[0] == learned[1]
    assert len(set(learned[0].values())) == 3


@pytest.mark.timeout(250)
def test_a_killed_tuning_goes_on(file: Path, folder: Path) -> None:
    process = start(folder, str(file), "tune.slots=1")
    until(lambda: (folder / "trial-001" / "progress.jsonl").is_file())
    started = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    until(lambda: not any(psutil.pid_exists(pid) for pid in started))
    first = (folder / "trial-000" / "result.json").read_text()
    assert trials(folder)["trial-000"]["state"] == "terminated"
    ended(start(folder, "--resume"), 0)
    assert {each["state"] for each in trials(folder).values()} == {"terminated"}
    assert (folder / "trial-000" / "result.json").read_text() == first
    assert read(folder / "result.json")["status"] == "stopped"


@pytest.mark.timeout(250)
@pytest.mark.parametrize("launcher", ["serial", "local"])
def test_an_interrupted_tuning_goes_on_where_it_is_moved(
    file: Path, folder: Path, launcher: str
) -> None:
    words = ("tune.trials=2", "tune.slots=1", "tune.stop.env_steps=60_000")
    process = start(folder, str(file), *words, f"tune.launcher={launcher}")
    until(lambda: (folder / "trial-000" / "progress.jsonl").is_file())
    if launcher == "serial":
        os.kill(process.pid, signal.SIGINT)
    else:
        said = folder.parent / "stop.txt"
        ended(Process([*COMMAND, "stop", str(folder)], said), 0)
        assert f"tuning {folder} has ended: interrupted" in said.read_text()
    said_last = ended(process, 130)
    assert f"surreal-like tune --resume --folder {folder}" in said_last
    state = trials(folder)["trial-000"]
    assert (state["state"], state["failures"]) == ("paused", 0)
    assert read(folder / "trial-000" / "result.json")["status"] == "interrupted"
    steps = read(folder / "trial-000" / "result.json")["env_steps"]
    moved = folder.with_name("moved")
    folder.rename(moved)
    ended(start(moved, "--resume", "tune.stop.env_steps=6000"), 0)
    assert {each["state"] for each in trials(moved).values()} == {"terminated"}
    assert read(moved / "trial-000" / "result.json")["env_steps"] >= steps


@pytest.mark.timeout(250)
def test_two_interrupts_at_once_end_everything(file: Path, folder: Path) -> None:
    process = start(folder, str(file), "tune.slots=1", "tune.stop.env_steps=30_000")
    until(lambda: (folder / "trial-000" / "progress.jsonl").is_file())
    # While it stands still both are counted together.
    os.kill(process.pid, signal.SIGSTOP)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        os.kill(process.pid, number)
    ended(process, 130)
    assert read(folder / "result.json")["status"] == "interrupted"
    assert {each["state"] for each in trials(folder).values()} <= {"pending", "paused"}


BREAKS = """
from surreal_like.env.toy import Chain


class Breaks(Chain):
    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.left = after or 10**9

    def step(self, action: object) -> object:
        self.left -= 1
        if self.left < 0:
            raise ValueError("a spring broke")
        return super().step(action)
"""


@pytest.mark.timeout(250)
def test_a_trial_whose_environment_breaks_is_given_up(file: Path, folder: Path) -> None:
    (folder.parent / "breaks.py").write_text(BREAKS)
    words = (
        "env_config={env_name: 'breaks:Breaks', env_args: {after: 0}}",
        f"session_config.import_path=['{folder.parent}']",
        "space={env_config.env_args.after: {grid: [0, 20]}}",
        *("tune.trials=1", "tune.max_failures=1", "tune.min_episodes=1"),
    )
    said = ended(start(folder, str(file), *words), 0)
    state = trials(folder)
    assert [each["state"] for each in state.values()] == ["terminated", "error"]
    assert state["trial-001"]["failures"] == 2
    assert "a spring broke" in state["trial-001"]["reason"]
    assert "a spring broke" in said
    assert "surreal-like tune --resume --retry-errors --folder" in said


@pytest.mark.timeout(250)
def test_a_killed_trial_is_tried_again(file: Path, folder: Path) -> None:
    process = start(folder, str(file), "tune.trials=1", "tune.stop.env_steps=20_000")
    until(lambda: (folder / "trial-000" / "progress.jsonl").is_file())
    os.kill(read(folder / "alive" / "trial-000")["pid"], signal.SIGKILL)
    ended(process, 0)
    state = trials(folder)["trial-000"]
    assert (state["state"], state["failures"]) == ("terminated", 1)
    assert "SIGKILL" in (folder / "events.jsonl").read_text()
