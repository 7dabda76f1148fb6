"""The archive of the code of a run, and commands that run with it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.folder import UNPACKED, RunFolder
from surreal_like.experiment.user_code import archive_code, file_hash, restart_archived

ROOT = Path(__file__).resolve().parents[3]
SMALL = [
    "learner_config.replay={min_size: 64, batch_size: 16, capacity: 2000}",
    "learner_config.model.hidden_sizes=[16]",
    "env_config.num_envs=4",
    "session_config.sender.flush_iteration=8",
    "session_config.import_path=[extra]",
    "session_config.stop={env_steps: 400, eval_episodes: 4}",
]
OWN = {
    "own/mine.py": (
        "import worlds\nfrom surreal_like.algorithm.dqn import DQN\nfrom .nets import NAME\n\n"
        "class Mine(DQN):\n    name = NAME\n"
    ),
    "own/nets.py": "NAME = 1\n",
    "extra/worlds.py": "SIZE = 5\n",
    "extra/unused.py": "SIZE = 6\n",
}


@pytest.fixture(autouse=True)
def same_code() -> None:
    """Pack each archive: the fixture of all tests, which this replaces, packs equal code once."""


def keep(folder: RunFolder, import_path: Path) -> str:
    config: Config = BASE_CONFIG.copy()
    config.session_config.import_path = [str(import_path)]
    return archive_code(config, folder)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Return a run folder outside of any git repository."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extra" / "deep" / "__pycache__").mkdir(parents=True)
    (tmp_path / "extra" / "deep" / "a.py").write_text("A = 1\n")
    (tmp_path / "extra" / "deep" / "__pycache__" / "a.py").write_text("")
    (tmp_path / "extra" / "notes.txt").write_text("")
    (tmp_path / "run" / "code").mkdir(parents=True)
    (tmp_path / "run" / "code" / "mine.py").write_text("B = 1\n")
    return RunFolder(tmp_path / "run")


def test_equal_files_give_equal_bytes(folder: RunFolder, tmp_path: Path) -> None:
    first = keep(folder, tmp_path / "extra")
    archive = folder.code / "source.tar.gz"
    assert first == file_hash(archive)
    os.utime(tmp_path / "extra" / "deep" / "a.py", (1, 1))
    assert keep(folder, tmp_path / "extra") == first
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert names == sorted(names)
    assert {"session/folder.py", "surreal_like/__init__.py", "main/cli/train.py"} < set(names)
    rest = [name for name in names if name.split("/")[0] not in ("session", "surreal_like", "main")]
    assert rest == ["code/mine.py", "import_path/0/deep/a.py"]
    assert not folder.events.exists()
    (tmp_path / "extra" / "deep" / "a.py").write_text("A = 2\n")
    assert keep(folder, tmp_path / "extra") != first


def test_what_is_too_large_is_an_event(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "extra" / "large.py").write_bytes(b"#" * 10_000_000)
    keep(folder, tmp_path / "extra")
    with tarfile.open(folder.code / "source.tar.gz") as tar:
        assert "import_path/0/large.py" not in tar.getnames()
        assert "import_path/0/deep/a.py" in tar.getnames()
    event = json.loads(folder.events.read_text())
    assert event["event"] == "snapshot"
    assert "lacks 1 of the files: import_path/0/large.py" in event["detail"]


def test_the_archive_describes_the_state_of_git(folder: RunFolder, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *name, *words], check=True, capture_output=True)

    keep(folder, tmp_path / "extra")
    assert not (folder.code / "git.json").exists()
    git("init")
    git("add", "extra")
    git("commit", "-m", "a")
    (tmp_path / "extra" / "deep" / "a.py").write_text("A = 3\n")
    keep(folder, tmp_path / "extra")
    state = json.loads((folder.code / "git.json").read_text())
    assert len(state["revision"]) == 40
    assert " M extra/deep/a.py" in state["changed"]
    assert "+A = 3" in state["diff"]
    shutil.rmtree(tmp_path / ".git")
    keep(folder, tmp_path / "extra")
    assert not (folder.code / "git.json").exists()


def test_without_a_snapshot_the_old_archive_goes(folder: RunFolder, tmp_path: Path) -> None:
    keep(folder, tmp_path / "extra")
    config = BASE_CONFIG.copy()
    config.session_config.launcher.snapshot = False
    assert archive_code(config, folder) == ""
    assert [path.name for path in folder.code.iterdir()] == ["mine.py"]


def test_unpacked_code_of_killed_commands_is_removed(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    left, used = temporary / "sl-snapshot-left", temporary / "sl-snapshot-used"
    for place in (left, used):
        (place / "main").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    config = BASE_CONFIG.copy()
    config.algorithm = "dqn"
    config.recorded = {"source_sha256": keep(folder, tmp_path / "extra")}
    config.dump_file(folder.config)

    def replace_process(program: str, words: list[str], environment: dict[str, str]) -> None:
        place = os.open(environment[UNPACKED], os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(place)
        assert sorted(temporary.iterdir()) == sorted([used, Path(environment[UNPACKED])])
        raise RuntimeError("replaced")

    monkeypatch.setattr(os, "execve", replace_process)
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(RuntimeError, match="replaced"):
        restart_archived(folder, ["play"])
    os.close(lock)
    assert list(temporary.iterdir()) == [used]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_acts_with_the_code_of_its_start(tmp_path: Path) -> None:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    changed, temporary = tmp_path / "changed", tmp_path / "temporary"
    temporary.mkdir()
    for package in ("session", "surreal_like", "main"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, changed / package, ignore=ignored)
    place = changed / "surreal_like" / "algorithm" / "dqn.py"
    text = place.read_text()
    line = "        epsilon = self.epsilon\n"
    assert line in text
    place.write_text(text.replace(line, f"{line}        greedy = greedy * 0\n"))

    def surreal(*words: str, code: Path, exit_code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "main.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(code), "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr
        assert not list(temporary.glob("sl-snapshot-*"))
        return done.stdout

    def returns(*words: str, code: Path) -> float:
        played = ("evaluate", "r", "--checkpoint", "latest", "--episodes", "4", "--json", *words)
        return float(json.loads(surreal(*played, code=code))["mean_return"])

    mine = ("--algorithm", "own/mine.py", "--env", "toy:chain", "--on", "serial", "--quiet")
    surreal("train", *mine, "--folder", "r", *SMALL, code=ROOT)
    before = returns(code=ROOT)
    assert returns(code=changed) != before
    (tmp_path / "own" / "mine.py").write_text("raise ValueError\n")
    (tmp_path / "extra" / "worlds.py").write_text("raise ValueError\n")
    assert returns("--snapshot", code=changed) == before
    recorded = file_hash(tmp_path / "r" / "code" / "source.tar.gz")
    resume = ("train", "--resume", "--folder", "r", "--on", "serial", "--quiet", "--snapshot")
    surreal(*resume, "session_config.stop.env_steps=2000", code=changed)
    config = RunFolder(tmp_path / "r").read_config()
    assert config["recorded"]["source_sha256"] == recorded
    assert config.algorithm == "own/mine.py"
    # Without it, the user's changed module is imported.
    surreal("evaluate", "r", "--episodes", "4", code=changed, exit_code=2)
    surreal(*resume, code=changed, exit_code=2)
