"""Whose a run folder is: of several that begin at once each gets its own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.run import folder as run_folder
from surreal_like.run.folder import held, put_back_if_refused
from tests.session.made_run import made_config, made_run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_that_begins_at_the_same_moment_gets_another_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_path = run_folder.new_path
    seen_by_all = new_path("cartpole")
    # Both have seen the same free name before the first of them takes it.
    names = iter([seen_by_all, seen_by_all])
    monkeypatch.setattr(run_folder, "new_path", lambda name: next(names, None) or new_path(name))
    with held(None, name="cartpole") as one, held(None, name="cartpole") as other:
        assert one.path == seen_by_all
        assert other.path != one.path
        assert other.path.name.startswith("cartpole-")
    assert not Path("runs").exists()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with held(Path("mine")):
        pass
    assert not any(Path("mine").iterdir())


@pytest.mark.parametrize("name", ["logs", "checkpoints", "alive", "lock"])
def test_an_interruption_while_it_is_made_leaves_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    mkdir = Path.mkdir
    monkeypatch.setattr(
        Path,
        "mkdir",
        lambda path, *args, **more: (
            interrupted() if path.name == name else mkdir(path, *args, **more)
        ),
    )
    if name == "lock":
        monkeypatch.setattr(RunFolder, "lock", interrupted)
    with pytest.raises(KeyboardInterrupt), held(Path("mine")):
        pass
    assert not Path("mine").exists()


def test_empty_folders_of_another_that_is_refused_stay() -> None:
    Path("mine/logs").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty"), held(Path("mine")):
        pass
    assert Path("mine/logs").exists()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "run folder run cannot be written: No "),
        (
            IsADirectoryError(errno.EISDIR, "Is a directory", "run/code/a.py"),
            "run/code/a.py cannot",
        ),
        (
            OSError(errno.EISDIR, "Is a directory", "x", None, "run/code/a.py"),
            "run/code/a.py canno",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "/dev/null/of-a-user"), ""),
    ],
)
def test_a_disk_that_refuses_files_of_the_run_is_one_line(error: OSError, words: str) -> None:
    folder: RunFolder = made_run(Path("run"))
    content = folder.config.read_text()
    kind = UsageError if words else OSError

    def begin() -> None:
        with put_back_if_refused(made_config(), folder):
            folder.config.write_text("changed")
            folder.result.write_text("new")
            raise error

    with pytest.raises(kind) as refused:
        begin()
    assert words in str(refused.value)
    assert folder.config.read_text() == content
    assert not folder.result.exists()
