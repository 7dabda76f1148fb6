"""Whole runs in one thread: a test kills, stops and scales components between two rounds."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from session.folder import RunFolder
from session.launchers.serial import SerialLauncher
from session.process.heartbeat import State
from session.process.service import Frame
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.topology import make_topology
from tests.runs.command import read_lines, without_real_times

# A small run that learns soon and does not evaluate; each test changes what it needs.
SMALL: Mapping[str, Any] = {
    "session_config.agent.num": 2,
    "session_config.evaluator.num": 0,
    "session_config.stop": {"env_steps": 1200},
    "session_config.sender.flush_iteration": 8,
    "session_config.learner.batches_per_request": 2,
    "session_config.launcher.grace_seconds": 1.0,
    "learner_config.model.hidden_sizes": [16],
    "learner_config.replay.min_size": 64,
    "learner_config.replay.batch_size": 16,
    "learner_config.replay.samples_per_insert": 2.0,
    "env_config.num_envs": 2,
    "learner_config.parameter_publish.min_publish_interval": 0.02,
}
ROUNDS = 30_000

T = TypeVar("T")
Fault = Callable[["SerialRun"], object]


@dataclass(frozen=True)
class Ended:
    """Files and counters of a run that is over; equal for two runs that did the same.

    Args:
        result: ``result.json`` without real durations.
        progress: the lines of ``progress.jsonl`` without real durations.
        events: those of ``events.jsonl``, with their counted times.
        parameters: SHA-256 of those in the newest checkpoint.
        seen: what the fault returned.
    """

    result: dict[str, Any]
    progress: list[dict[str, Any]]
    events: list[dict[str, Any]]
    parameters: str
    seen: Any

    def events_of(self, kind: str) -> list[str]:
        """The texts of the events of one kind."""
        return [event["detail"] for event in self.events if event["event"] == kind]

    @property
    def restarts(self) -> dict[str, int]:
        """Component -> its restarts, of those that were restarted."""
        ends = self.result["components"].items()
        return {name: end["restarts"] for name, end in ends if end["restarts"]}


class SerialRun:
    """A run in progress.

    Args:
        launcher: of the run, which was launched.
    """

    def __init__(self, launcher: SerialLauncher) -> None:
        self.launcher = launcher

    def until(self, condition: Callable[[], T | None]) -> T:
        """Runs rounds until the condition is true; returns its value."""
        for _ in range(ROUNDS):
            if found := condition():
                return found
            self.launcher.poll()
            assert self.launcher.running, "the run has ended too early"
        raise AssertionError(f"it did not come in {ROUNDS} rounds")

    def frame(self, name: str) -> Frame | None:
        """A component, None while it has ended."""
        frames = {frame.context.name: frame for frame in self.launcher.frames.living()}
        return frames.get(name)

    def service(self, name: str) -> Any:
        """The service of a component, None while it has none."""
        frame = self.frame(name)
        return frame._service if frame is not None and frame.state == State.running else None

    def running(self, name: str) -> Any:
        """Runs rounds until a component has a service; returns that."""
        return self.until(lambda: self.service(name))

    def steps(self, number: int) -> None:
        """Runs rounds until the learner has counted so many environment steps."""
        learner = self.running("learner")
        self.until(lambda: learner.coordinator.record.accounts.env_steps >= number)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal between two rounds."""
        self.launcher.frames.signal(name, number)

    def kill(self, *names: str) -> None:
        """Kills components at once."""
        for name in names:
            self.signal(name, signal.SIGKILL)

    def kill_and_wait(self, name: str) -> Any:
        """Kills a component, and runs rounds until its successor has a service; returns that."""
        self.kill(name)
        self.until(lambda: self.service(name) is None)
        return self.running(name)


def play(
    path: Path, fault: Fault, changes: Mapping[str, Any], *, restarts: bool = True, part: int = 1
) -> Ended:
    """Plays a part of a run from its launch to its end; without restarts the first error ends it.

    Parts from the second one on go on in the folder of the ones before.
    """
    words = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **changes}.items()]
    config = resolve(read_experiment(None, words, algorithm="dqn", env_name="toy:chain"))
    config["run"] = {"id": "a-run", "started": 0.0, "first_started": 0.0, "seconds_before": 0.0}
    config["run"]["part"] = part
    folder = RunFolder(path)
    if part == 1:
        folder.create()
    config.dump_file(folder.config)
    launcher = SerialLauncher(
        config,
        make_topology(config),
        folder,
        prepare=lambda: torch.set_num_threads(1),
        restarts=restarts,
    )
    with launcher:
        launcher.launch()
        seen = fault(SerialRun(launcher))
        for _ in range(ROUNDS):
            launcher.poll()
            if not launcher.running:
                break
        assert not launcher.running, f"goes on after {ROUNDS} rounds: {launcher.status()}"
    return Ended(
        without_real_times(dict(folder.read_result() or {})),
        without_real_times(read_lines(folder.progress)),
        read_lines(folder.events),
        digest(folder),
        seen,
    )


def digest(folder: RunFolder) -> str:
    """SHA-256 of the parameters in the newest checkpoint, empty without one."""
    checkpoints = (folder.checkpoints / "learner").glob("[0-9]*")
    newest = max(checkpoints, key=lambda path: int(path.name), default=None)
    if newest is None:
        return ""
    return hashlib.sha256((newest / "params.safetensors").read_bytes()).hexdigest()


def play_twice(path: Path, fault: Fault, **changes: Any) -> Ended:
    """Plays a run twice and checks that both did the same; returns the first."""

    first, second = (play(path / name, fault, changes) for name in "ab")
    assert first == second
    return first
