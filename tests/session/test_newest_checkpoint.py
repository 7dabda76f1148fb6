"""The newest intact checkpoint of a lineage is restored, and the others are set aside."""

from pathlib import Path

from session.checkpoint import read_state
from session.newest_checkpoint import Checkpoints
from tests.session.test_checkpoint import numbers, write


def test_history_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_history=2)
    for number in (5, 10, 100):
        checkpoints.save(number, {"iteration": number}, write)
    assert [path.name for path in checkpoints.newest_first()] == ["100", "10"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "100"]


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
