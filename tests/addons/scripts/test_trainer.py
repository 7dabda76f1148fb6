"""A run as an object: it trains line by line, saves, stops, and is the run that `train` makes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from session.errors import ConfigError, RunError
from session.folder import RunFolder
from surreal_like import train
from surreal_like.addons.scripts.trainer import Trainer
from surreal_like.experiment.checkpoints import whole_checkpoint
from tests.runs.command import clean, without_real_times

pytestmark = pytest.mark.usefixtures("quick")

OVERRIDES = {
    "learner_config.replay.min_size": 64,
    "learner_config.model.hidden_sizes": [16],
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
    "session_config.learner.report_seconds": 0.05,
}


def trainer(folder: Path, iterations: int, **given: Any) -> Trainer:
    stop = {"session_config.stop": {"iterations": iterations, "eval_episodes": 4}}
    given = {"algorithm": "dqn", "env": "toy:chain", "launcher": "serial"} | given
    return Trainer(overrides=OVERRIDES | stop, folder=folder, **given)


def digest(folder: Path) -> str:
    path = whole_checkpoint(RunFolder(folder), "latest")
    return hashlib.sha256((path / "params.safetensors").read_bytes()).hexdigest()


def progress(folder: Path) -> list[dict[str, Any]]:
    lines = RunFolder(folder).progress.read_text().splitlines()
    found: list[dict[str, Any]] = without_real_times([json.loads(line) for line in lines])
    return [{**line, "run_id": ""} for line in found]


@pytest.mark.slow
def test_each_line_has_a_step_and_an_update(tmp_path: Path) -> None:
    with trainer(tmp_path / "run", 100_000) as run:
        lines = [run.train() for _ in range(3)]
        assert run.running
        path = run.save()
        assert (path / "params.safetensors").exists()
        assert int(path.name) >= lines[-1]["iteration"]
        assert run.stop()["status"] == "stopped"
        assert not run.running
        with pytest.raises(RunError, match="is over: its checkpoints"):
            run.save()
    counted = [(line["env_steps"], line["iterations"]) for line in lines]
    assert counted == sorted(counted)
    assert len({steps for steps, _ in counted}) == len({n for _, n in counted}) == 3
    assert clean(RunFolder(run.folder).read_result() or {})


def test_it_is_the_run_that_train_makes(tmp_path: Path) -> None:
    with trainer(tmp_path / "one", 150, seed=3) as run:
        while run.running:
            last = run.train()
        assert last["iterations"] == 150
        with pytest.raises(RunError, match=r"the run is over \(stopped\): budget of 150"):
            run.train()
    stop = {"session_config.stop": {"iterations": 150, "eval_episodes": 4}}
    words = OVERRIDES | stop
    folder = tmp_path / "other"
    train(
        algorithm="dqn", env="toy:chain", overrides=words, launcher="serial", folder=folder, seed=3
    )
    assert digest(run.folder) == digest(folder)
    assert progress(run.folder) == progress(folder)
    names = [sorted(p.name for p in each.iterdir()) for each in (run.folder, folder)]
    assert names[0] == names[1]


def test_a_wrong_setting_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dqm"):
        trainer(tmp_path / "run", 10, algorithm="dqm")
    assert not (tmp_path / "run").exists()


def test_an_error_in_the_block_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(TypeError), trainer(tmp_path / "run", 100_000) as run:
        vars(run.train())
    assert not RunFolder(tmp_path / "run").in_use


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_local_processes_are_trained_saved_and_resumed(tmp_path: Path) -> None:
    with trainer(tmp_path / "run", 100_000, launcher="local") as run:
        first = run.train()
        saved = run.save()
    assert (RunFolder(run.folder).read_result() or {})["status"] == "stopped"
    assert saved.is_dir()
    more = {"algorithm": None, "env": None, "launcher": "local", "resume": True}
    with trainer(tmp_path / "run", 200_000, **more) as again:
        assert again.train()["iterations"] > first["iterations"]
