"""Checkpoints are whole or not at all."""

from pathlib import Path

import pytest

from session.checkpoint import Checkpoints, read_state, save_one
from session.errors import CheckpointError


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"12345678")


def test_history_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_history=2)
    for number in (5, 10, 100):
        checkpoints.save(number, {"iteration": number}, write)
    assert [path.name for path in checkpoints.newest_first()] == ["100", "10"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "100"]


def test_state_comes_back(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(3, {"iteration": 3, "why": "test"}, write)
    assert read_state(path) == {"iteration": 3, "why": "test"}


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(3, {}, write)
    (path / "weights").write_bytes(b"1234")
    with pytest.raises(CheckpointError, match=r"weights has 4 bytes, it was saved with 8"):
        read_state(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(3, {}, write)
    (path / "weights").unlink()
    with pytest.raises(CheckpointError, match="weights has 0 bytes"):
        read_state(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_broken_state_is_named(tmp_path: Path, text: str) -> None:
    path = Checkpoints(tmp_path).save(3, {}, write)
    (path / "state.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"state\.json cannot be read"):
        read_state(path)


def test_a_failed_write_leaves_the_old_ones_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"n": 1}, write)

    def fail(folder: Path) -> None:
        (folder / "weights").write_bytes(b"123")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left"):
        checkpoints.save(2, {"n": 2}, fail)
    assert [path.name for path in checkpoints.newest_first()] == ["1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]


def test_one_under_a_fixed_name_is_replaced(tmp_path: Path) -> None:
    for score in (1, 2):
        save_one(tmp_path / "best", {"score": score}, write)
    assert read_state(tmp_path / "best") == {"score": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
