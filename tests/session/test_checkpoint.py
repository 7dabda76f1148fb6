"""Checkpoints are whole or not at all."""

import hashlib
from pathlib import Path

import pytest

from session.checkpoint import (
    FORMAT,
    STATE,
    Checkpoints,
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


def test_what_was_just_written_is_never_removed(tmp_path: Path) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, keep_history=2, note=said.append)
    for number in (100, 200):
        checkpoints.save(number, {}, write)
    assert checkpoints.save(50, {}, write).exists()
    assert [path.name for path in checkpoints.newest_first()] == ["50"]
    assert numbers(tmp_path / "aside") == ["100.2", "200.1"]
    assert said == [
        f"checkpoint {tmp_path / number} is above 50, which was saved after it; "
        f"set aside as aside/{number}.{turn}"
        for number, turn in (("200", 1), ("100", 2))
    ]


def take(path: Path, state: object) -> None:
    """Take any checkpoint."""


def test_the_newest_that_is_whole_is_the_newest_from_then_on(tmp_path: Path) -> None:
    for number in (100, 200):
        Checkpoints(tmp_path).save(number, {}, write)
    (tmp_path / "200" / "weights").write_bytes(b"12345679")
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, keep_history=1, note=said.append)
    assert checkpoints.restore(take) is not None
    assert said == [
        f"checkpoint file {tmp_path / '200' / 'weights'} was changed after it was saved; "
        "set aside as aside/200.1"
    ]
    checkpoints.save(150, {}, write)
    assert [path.name for path in checkpoints.newest_first()] == ["150"]
    assert read_state(tmp_path / "150")["grew_from"] == 100
    checkpoints.save(160, {}, write)
    assert read_state(tmp_path / "160")["grew_from"] == 150


def test_whatever_is_raised_while_restoring_means_a_bad_generation(tmp_path: Path) -> None:
    for number in (1, 2):
        Checkpoints(tmp_path).save(number, {"n": number}, write)

    def refuse_the_second(path: Path, state: object) -> None:
        if path.name == "2":
            raise ZeroDivisionError("of two\nlines")

    said: list[str] = []
    state = Checkpoints(tmp_path, note=said.append).restore(refuse_the_second)
    assert state is not None
    assert state["n"] == 1
    assert "2: ZeroDivisionError: of two lines; set aside" in said[0]


def test_of_what_is_set_aside_the_newest_stay(tmp_path: Path) -> None:
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, keep_history=1, note=said.append)
    for number in (9, 8, 7, 6):
        checkpoints.save(number, {}, write)
    assert numbers(tmp_path / "aside") == ["7.3", "8.2"]
    assert said[-1].endswith("set aside as aside/7.3, aside/9.1 removed")


def test_what_cannot_be_set_aside_is_said(tmp_path: Path) -> None:
    (tmp_path / "aside").write_text("in the way")
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, note=said.append)
    checkpoints.save(2, {}, write)
    checkpoints.save(1, {}, write)
    assert "it cannot be set aside: " in said[0]
    assert [path.name for path in checkpoints.newest_first()] == ["2", "1"]


def test_a_process_killed_while_it_replaced_a_checkpoint_loses_none(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(5, {"n": 5}, write)
    (tmp_path / "5").rename(tmp_path / "5-2")
    (tmp_path / ".5.saving").mkdir()
    assert Checkpoints(tmp_path).restore(take) == {"n": 5, "grew_from": None}
    assert numbers(tmp_path) == ["5"]


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
