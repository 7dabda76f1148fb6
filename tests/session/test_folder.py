"""The run folder: made once, held by one launcher, written in whole files."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from session.config import Config
from session.errors import UsageError
from session.folder import RunFolder
from tests.session.loggerplex.test_append_file import disk_of


def test_a_new_folder_has_what_every_process_expects(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    assert folder.logs.is_dir()
    assert folder.alive.is_dir()
    assert folder.checkpoints.is_dir()
    assert all(
        run_folder in path.parents
        for path in vars(folder).values()
        if isinstance(path, Path) and path != run_folder
    )


def test_an_existing_folder_is_never_entered(run_folder: Path) -> None:
    run_folder.mkdir()
    (run_folder / "thesis.txt").write_text("two years of work")
    with pytest.raises(UsageError, match=r"not empty.*--folder.*--resume"):
        RunFolder(run_folder).create()
    assert [path.name for path in run_folder.iterdir()] == ["thesis.txt"]


def test_an_empty_folder_is_taken(run_folder: Path) -> None:
    run_folder.mkdir()
    RunFolder(run_folder).create()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot make the run folder .*file/run"):
        RunFolder(tmp_path / "file" / "run").create()


def test_one_launcher_at_a_time(run_folder: Path) -> None:
    folder, other = RunFolder(run_folder), RunFolder(run_folder)
    folder.create()
    assert not other.in_use
    folder.lock()
    folder.lock()
    assert other.in_use
    with pytest.raises(UsageError, match=f"{run_folder} is in use.*surreal-like stop"):
        other.lock()
    folder.unlock()
    assert not other.in_use
    assert not (run_folder / ".lock").exists()
    other.lock()
    assert folder.in_use
    other.unlock()
    other.unlock()


def test_the_lock_ends_with_its_process(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    code = "import sys; from session.folder import RunFolder; f = RunFolder(sys.argv[1]); f.lock()"
    code += "; print(f.in_use, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run_folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert folder.in_use
        holder.kill()
        holder.wait()
    assert not folder.in_use
    folder.lock()
    folder.unlock()


def test_looking_does_not_keep_a_launcher_out(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    code = "import sys; from session.folder import RunFolder; f = RunFolder(sys.argv[1])\n"
    code += "print(f.in_use, flush=True)\nwhile True: f.in_use"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(run_folder)], stdout=subprocess.PIPE, text=True
    ) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        for _ in range(20):
            folder.lock()
            folder.unlock()
        looker.kill()


def test_a_lock_whose_file_was_just_removed_is_none(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former owner removes the file between our opening and our locking it."""
    folder = RunFolder(run_folder)
    folder.create()
    flock = fcntl.flock
    calls: list[int] = []

    def remove_first(file: IO[str], operation: int) -> None:
        if not calls:
            (run_folder / ".lock").unlink()
        calls.append(operation)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    folder.lock()
    assert RunFolder(run_folder).in_use
    folder.unlock()


def test_a_folder_that_is_not_there_cannot_be_locked(run_folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot use the run folder"):
        RunFolder(run_folder).lock()
    assert not RunFolder(run_folder).in_use


def test_a_full_disk_is_the_reason_of_a_lock_that_fails(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    with disk_of(0), pytest.raises(UsageError, match=r"cannot use the run folder .*too large"):
        folder.lock()
    assert not folder.in_use
    folder.lock()
    folder.unlock()


def test_sockets_lie_in_a_short_folder_named_by_the_run(run_folder: Path, tmp_path: Path) -> None:
    here = RunFolder(run_folder).sockets
    assert here != RunFolder(tmp_path / "other").sockets
    assert here == RunFolder(os.path.relpath(run_folder)).sockets
    assert len(here.name) == 15


def test_a_run_is_over_when_its_result_says_so(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    assert (folder.over, folder.read_result()) == (False, None)
    for text, over in [
        ('{"status": "running"}', False),
        ('{"status": "running", ', False),
        ('["status"]', False),
        ('{"status": "stopped"}', True),
        ('{"status": "failed"}', True),
    ]:
        folder.result.write_text(text)
        assert folder.over == over, text


_CONFIG = {"algorithm": "dqn", "learner_config": {}, "env_config": {}, "session_config": {}}


def test_a_config_is_read_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, reads, load = RunFolder(tmp_path), [], Config.load_file

    def counted(path: Path) -> Config:
        reads.append(path)
        return load(path)

    monkeypatch.setattr(Config, "load_file", counted)
    Config(_CONFIG).dump_file(folder.config)
    first, second = folder.read_config(), folder.read_config()
    first.algorithm = "changed by its reader"
    assert (second.algorithm, folder.read_config().algorithm, len(reads)) == ("dqn", "dqn", 1)
    Config(_CONFIG | {"algorithm": "ppo"}).dump_file(folder.config)
    assert (folder.read_config().algorithm, len(reads)) == ("ppo", 2)


def test_a_run_is_described_as_far_as_its_config_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert (folder.read_run(), folder.launcher) == ({}, "")
    Config(_CONFIG).dump_file(folder.config)
    assert (folder.read_run(), folder.launcher) == ({}, "")
    Config(_CONFIG | {"run": {"launcher": "tmux", "part": 2}}).dump_file(folder.config)
    assert (folder.read_run()["part"], folder.launcher) == (2, "tmux")
    folder.config.write_text("cut: off")
    assert folder.launcher == ""
