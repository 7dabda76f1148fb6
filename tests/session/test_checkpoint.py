"""Checkpoints are whole or not at all."""

import hashlib
from pathlib import Path

import pytest

from session.checkpoint import (
    FORMAT,
    STATE,
    earlier_ones,
    move_up,
    read_sealed,
    read_state,
    save_one,
    seal,
    unseal,
    write_sealed,
)
from session.errors import CheckpointError
from session.newest_checkpoint import Checkpoints


def write(folder: Path) -> None:
    (folder / "weights").write_bytes(b"12345678")


def test_state_comes_back(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(3, {"iteration": 3, "why": "test"}, write)
    assert read_state(path) == {"iteration": 3, "why": "test", "grew_from": None}


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
    with pytest.raises(CheckpointError, match=r"state\.json is damaged"):
        read_state(path)


ENTRY = {"bytes": 0, "blake2b": hashlib.blake2b(digest_size=16).hexdigest()}


@pytest.mark.parametrize(
    "files",
    [
        *(None, 5, "x", [], [[]], {"a": None}, {"a": {"bytes": 0}}, {"a": {**ENTRY, "bytes": "0"}}),
        *({name: ENTRY} for name in ("", ".", "..", "../x", "/dev/zero", "b/c", "a\0")),
    ],
    ids=str,
)
def test_a_list_of_files_that_is_damaged_is_named(tmp_path: Path, files: object) -> None:
    path = Checkpoints(tmp_path).save(1, {}, lambda beside: None)
    write_sealed(path / STATE, {"files": files})
    with pytest.raises(CheckpointError, match="cannot be read: "):
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


def numbers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("keep", "names"), [(1, ["best"]), (3, ["best", "best-2", "best-3"])])
def test_earlier_ones_stay_beside_the_newest(tmp_path: Path, keep: int, names: list[str]) -> None:
    for score in range(5):
        save_one(tmp_path / "best", {"score": score}, write, keep=3)
    save_one(tmp_path / "best", {"score": 5}, write, keep=keep)
    there = earlier_ones(tmp_path / "best")
    assert [path.name for path in there] == names == numbers(tmp_path)
    assert [read_state(path)["score"] for path in there] == [5, 4, 3][:keep]


def test_the_next_one_takes_the_place_of_a_best_that_went(tmp_path: Path) -> None:
    for score in range(2):
        save_one(tmp_path / "best", {"score": score}, write, keep=2)
    move_up(tmp_path / "best")
    assert read_state(tmp_path / "best")["score"] == 1
    (tmp_path / "best").rename(tmp_path / "elsewhere")
    move_up(tmp_path / "best")
    assert read_state(tmp_path / "best")["score"] == 0


def test_all_may_read_what_all_may_read_of_the_run(tmp_path: Path) -> None:
    def write_privately(folder: Path) -> None:
        write(folder)
        (folder / "weights").chmod(0o600)

    path = Checkpoints(tmp_path).save(1, {}, write_privately)
    modes = {file.stat().st_mode for file in path.iterdir()}
    assert len(modes) == 1


def test_sealed_data_come_back_and_any_change_is_seen(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, None, float("inf"), "\u00e9"], "b": {"c": True}}
    write_sealed(tmp_path / "file", content)
    assert read_sealed(tmp_path / "file") == content
    (tmp_path / "file").write_text((tmp_path / "file").read_text().replace("2.5", "2.6"))
    with pytest.raises(CheckpointError, match="file was changed after it was saved"):
        read_sealed(tmp_path / "file")


def test_a_file_of_another_format_is_not_read() -> None:
    text = seal({"step": 3})
    assert unseal(text, "here") == {"step": 3}
    other = {"format": FORMAT + 1, "step": 3}
    with pytest.raises(CheckpointError, match=r"here has format 2, this version reads format 1"):
        unseal(seal(other), "here")
