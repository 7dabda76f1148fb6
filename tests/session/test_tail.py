"""Files that grow, read bit by bit."""

from pathlib import Path

from session.tail import Tail


def test_tail_gives_each_line_once_and_only_whole_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = Tail(path)
    assert tail.objects() == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert tail.objects() == [{"a": 1}, {"a": 2}]
    assert tail.objects() == []
    with path.open("a") as file:
        file.write(': 3}\nno json\n[1]\n{"a": 4}\n')
    assert tail.objects() == [{"a": 3}, {"a": 4}]


def test_tail_begins_near_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"a": {i}}}\n' for i in range(10_000)))
    found = Tail(path, catch_up_bytes=100).objects()
    assert [each["a"] for each in found] == list(range(10_000 - len(found), 10_000))
    assert 5 < len(found) < 10
    assert len(Tail(path, catch_up_bytes=None).lines()) == 10_000


def test_tail_begins_anew_where_a_file_was_rotated(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\n")
    tail = Tail(path)
    assert tail.lines() == ["one", "two"]
    path.rename(tmp_path / "a.log.1")
    path.write_text("a line that is longer than both\n")
    assert tail.lines() == ["a line that is longer than both"]
    path.write_text("short\n")
    assert tail.lines() == ["short"]
