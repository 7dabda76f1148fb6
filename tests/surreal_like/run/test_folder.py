"""Whose a run folder is: of several that begin at once each gets its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal_like.run import folder as run_folder
from surreal_like.run.folder import held


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
