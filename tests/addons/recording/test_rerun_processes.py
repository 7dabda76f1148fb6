"""A run of processes, some of which are killed, is repeated bit for bit; other code is found."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from session.folder import RunFolder
from surreal_like.addons.recording.other_code import compare_code
from tests.addons.recording.test_rerun import RAINBOW, record
from tests.runs.command import CARTPOLE, ROOT, Train

UPDATES = 100_000
SETTINGS = (
    "session_config.record.what=all",
    "session_config.flight.keep=all",
    "session_config.agent.num=4",
    "session_config.evaluator.num=0",
    "session_config.checkpoint.seconds=5",
    f"session_config.stop={{iterations: {UPDATES}, seconds: 400}}",
    "session_config.stop.eval_return=null",
    "session_config.stop.env_steps=null",
    "learner_config.replay.type=PrioritizedReplay",
    "learner_config.replay.replay_shards=2",
    # Else the agents set the pace.
    "learner_config.replay.samples_per_insert=128",
)


def rerun(folder: Path) -> dict[str, object]:
    words = (sys.executable, "-m", "surreal_like", "rerun", str(folder), "--json")
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def has_made(train: Train, updates: int) -> bool:
    return bool(train.line.get("iterations", 0) > updates)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_with_killed_processes_is_repeated(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, *SETTINGS) as train:
        for updates, name in ((20_000, "agent-1"), (40_000, "learner"), (60_000, "replay-0")):
            train.until(partial(has_made, train, updates), seconds=300.0)
            train.kill(name)
        train.until(lambda: not train.running or None, seconds=300.0)
        assert train.result["iterations"] >= UPDATES
    found = rerun(run_folder)
    assert found["differs"] is None
    assert found["problems"] == []
    # What the learner has made anew counts once in the run, and is repeated both times.
    assert isinstance(found["updates"], int)
    assert found["updates"] >= 0.99 * UPDATES


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_update_at_which_other_code_learns_otherwise_is_named(tmp_path: Path) -> None:
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", RAINBOW)
    code = tmp_path / "code"
    for name in ("main", "session", "surreal_like", "configs"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert compare_code(RunFolder(run.path), code) is None
    place = code / "surreal_like" / "learner" / "optimizer.py"
    text = place.read_text()
    changed = text.replace("add_(self._epsilon)", "add_(2 * self._epsilon)")
    assert changed != text
    place.write_text(changed)
    found = compare_code(RunFolder(run.path), code)
    assert found is not None
    assert found.update == 1
    assert found.tensor
    assert 0 < found.largest < 1e-3
