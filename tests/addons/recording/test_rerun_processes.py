"""A run of processes, some of which are killed, is repeated bit for bit; other code is found."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.addons.recording.other_code import Comparer, _read_trace, trace
from surreal_like.addons.recording.rerun import Rerun
from surreal_like.addons.recording.segments import Kind
from tests.addons.recording.test_rerun import RAINBOW, change, heads, record
from tests.runs.command import CARTPOLE, ROOT, Train

UPDATES = 100_000
SETTINGS = (
    "session_config.record.what=all",
    "session_config.flight.keep=all",
    "session_config.agent.num=4",
    "session_config.evaluator.num=0",
    "session_config.checkpoint.seconds=5",
    f"session_config.stop={{iterations: {UPDATES}, seconds: 800}}",
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
@pytest.mark.timeout(1800)
def test_a_run_with_killed_processes_is_repeated(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, *SETTINGS) as train:
        for updates, name in ((20_000, "agent-1"), (40_000, "learner"), (60_000, "replay-0")):
            train.until(partial(has_made, train, updates), seconds=800.0)
            train.kill(name)
        train.until(lambda: not train.running or None, seconds=800.0)
        assert train.result["iterations"] >= UPDATES
    found = rerun(run_folder)
    assert found["differs"] is None
    assert found["problems"] == []
    # What the learner has made anew counts once in the run, and is repeated both times.
    assert isinstance(found["updates"], int)
    assert found["updates"] >= 0.99 * UPDATES


def other_checkout(folder: Path, before: str, after: str) -> Path:
    """Returns a copy of the code, in which optimizers have another line."""
    for name in ("main", "session", "surreal_like", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    place = folder / "surreal_like" / "learner" / "optimizer.py"
    text = place.read_text()
    assert before in text
    place.write_text(text.replace(before, after))
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    settings = {
        "session_config.checkpoint.period": 100,
        "session_config.checkpoint.keep_history": 9,
    }
    return record(folder, "dqn", "gym:CartPole-v1", {**RAINBOW, **settings})


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Code that learns something else from its 131st step on."""
    folder = tmp_path_factory.mktemp("late")
    return other_checkout(folder, "beta_2**self._steps", "beta_2 ** min(self._steps, 130)")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_same_code_learns_the_same(recorded: RunFolder, tmp_path: Path) -> None:
    code = other_checkout(tmp_path, "self._epsilon = epsilon", "self._epsilon = float(epsilon)")
    found = Comparer(recorded, code).compare()
    assert found.equal
    assert (found.here.updates, found.there.updates) == (230, 230)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_other_update_is_named_by_tensors_too(
    recorded: RunFolder, tmp_path: Path
) -> None:
    code = other_checkout(tmp_path, "add_(self._epsilon)", "add_(2 * self._epsilon)")
    found = Comparer(recorded, code).compare()
    assert (found.update, found.equal) == (1, False)
    assert 0 < len(found.differences) <= found.tensors
    assert all(each.largest and each.largest < 1e-3 for each in found.differences)
    shares = [each.share for each in found.differences]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[-1] <= shares[0] < 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("begin", "until", "update"),
    [(None, None, 131), (None, 131, 131), (None, 130, None), (200, None, 201), (100, 140, 131)],
)
def test_a_part_of_the_updates_is_compared(
    recorded: RunFolder, late: Path, begin: int | None, until: int | None, update: int | None
) -> None:
    found = Comparer(recorded, late).compare(begin, until)
    assert found.update == update
    assert found.here.differs is None
    assert found.there.differs == (None if update is None else (update - 1, update))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_the_codes_cannot_repeat_is_no_equality(
    recorded: RunFolder, late: Path, tmp_path: Path
) -> None:
    copy = RunFolder(shutil.copytree(recorded.path, tmp_path / "run"))
    change(*heads(copy, "replay-0", Kind.CHUNK)[1], sealed=False)
    found = Comparer(copy, late).compare(until=100)
    assert found.update is None
    assert not found.equal
    assert found.here.problems == found.there.problems != []
    words = ("rerun", str(copy.path), "--code", str(late), "--until", "100")
    done = subprocess.run(
        [sys.executable, "-m", "surreal_like", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"{late}: update" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_codes_are_compared_with_the_run(recorded: RunFolder, late: Path) -> None:
    """Called from the other checkout, this one is the other code."""
    words = ("-m", "main.cli", "rerun", str(recorded.path), "--json", "--code", str(ROOT))
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=late,
        env={**os.environ, "PYTHONPATH": str(late)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["update"] == 131
    assert found["here"]["differs"] == [130, 131]
    assert found["there"]["differs"] is None


def test_a_folder_without_code_is_refused_at_once(recorded: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkout"):
        Comparer(recorded, tmp_path)


def test_fields_of_other_code_are_left_out(recorded: RunFolder, tmp_path: Path) -> None:
    trace(recorded, tmp_path, policy=None, after=0, begin=None, until=20)
    place = tmp_path / "trace.json"
    found = json.loads(place.read_text())
    place.write_text(json.dumps({**found, "outcome": {**found["outcome"], "skipped": 3}}))
    assert _read_trace(tmp_path).outcome == Rerun(**found["outcome"])


def test_code_that_leaves_no_trace_is_refused(
    recorded: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Comparer, "_run_there", lambda self, *numbers: None)
    with pytest.raises(UsageError, match="is too old: its rerun leaves no trace"):
        Comparer(recorded, ROOT).compare(until=20)
