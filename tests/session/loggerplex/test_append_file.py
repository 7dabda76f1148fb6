"""Files that grow by whole blocks: full disks, rotation, bounds."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.loggerplex.append_file import AppendFile


@contextmanager
def disk_of(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond a size: as on a full disk, a write stops half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_blocks_are_appended_in_order(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "sub/folder/a.log")
    file.add(b"one\n")
    assert not file.path.exists()
    assert file.flush()
    file.add(b"two\n")
    file.add(b"three\n")
    assert file.flush()
    assert file.path.read_bytes() == b"one\ntwo\nthree\n"
    assert file.held_bytes == 0


def test_what_stood_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old\n")
    file = AppendFile(tmp_path / "a")
    file.add(b"new\n")
    assert file.flush()
    assert file.path.read_bytes() == b"old\nnew\n"


def test_full_disk_leaves_no_half_block_and_loses_nothing_that_fits(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a")
    file.add(b"first\n")
    assert file.flush()
    with disk_of(100):
        file.add(b"x" * 150)
        assert not file.flush()
        assert "large" in file.problem
        assert file.path.read_bytes() == b"first\n"
        file.add(b"last\n")
        assert not file.flush()
    assert file.flush()
    assert file.problem == ""
    assert file.path.read_bytes() == b"first\n" + b"x" * 150 + b"last\n"
    assert file.lost == 0


def test_full_disk_costs_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a", limit_bytes=1000)
    with disk_of(10):
        for _ in range(50):
            file.add(b"y" * 100)
        assert not file.flush()
    assert file.held_bytes == 1000
    assert file.lost == 40
    assert file.flush()
    assert file.path.stat().st_size == 1000


def test_bound_does_not_lose_what_the_disk_takes(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a", limit_bytes=1000)
    for _ in range(50):
        file.add(b"y" * 100)
    assert file.flush()
    assert (file.lost, file.path.stat().st_size) == (0, 5000)


def test_one_block_above_the_bound_still_goes(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a", limit_bytes=10)
    file.add(b"z" * 100)
    assert file.flush()
    assert file.path.stat().st_size == 100


def test_folder_that_cannot_be_made_is_a_problem_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = AppendFile(tmp_path / "file" / "a")
    file.add(b"x")
    assert not file.flush()
    assert file.problem


def read_all(path: Path) -> bytes:
    """A log with its rotated predecessors, the oldest first."""
    numbered = [path.with_name(f"{path.name}.{number}") for number in (3, 2, 1)]
    return b"".join(p.read_bytes() for p in (*numbered, path) if p.exists())


@given(sizes=st.lists(st.lists(st.integers(1, 30), max_size=6), max_size=6))
def test_rotation_keeps_every_line_whole_and_every_file_small(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("r") / "a.log"
    lines = [[b"%d" % (size % 10) * size + b"\n" for size in group] for group in sizes]
    file = AppendFile(path, rotate_bytes=64)
    for group in lines:
        for line in group:
            file.add(line)
        assert file.flush()
    everything = b"".join(line for group in lines for line in group)
    kept = read_all(path)
    assert everything.endswith(kept)
    files = list(path.parent.iterdir())
    assert all(each.stat().st_size <= 64 for each in files)
    assert len(files) <= 4
    assert kept == everything or len(files) == 4


def test_line_above_the_size_of_rotation_has_a_file_of_its_own(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a.log", rotate_bytes=64)
    for letter in (b"a", b"b"):
        file.add(letter * 100)
    assert file.flush()
    assert file.path.read_bytes() == b"b" * 100
    assert read_all(file.path) == b"a" * 100 + b"b" * 100


def test_rotation_while_the_disk_is_full_loses_nothing(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "a.log", rotate_bytes=64)
    file.add(b"a" * 60)
    assert file.flush()
    file.add(b"b" * 60)
    with disk_of(10):
        assert not file.flush()
    assert file.flush()
    assert read_all(file.path) == b"a" * 60 + b"b" * 60


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 0)])
def test_file_that_is_removed_is_made_again(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file = AppendFile(tmp_path / "a.log", rotate_bytes=64)
    file.add(b"a" * 60)
    assert file.flush()
    change(file.path)
    file.add(b"b" * 60)
    assert file.flush()
    assert file.path.read_bytes() == b"b" * 60


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b"c\nd\n"), (b"a\n", b"a\nc\nd\n"), (b"a\nb", b"a\nb\nc\nd\n")],
)
def test_lines_begin_behind_one_that_was_left_incomplete(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(before)
    file = AppendFile(path, lines=True)
    for line in (b"c\n", b"d\n"):
        file.add(line)
        file.flush()
    assert path.read_bytes() == after
    records = AppendFile(tmp_path / "records")
    (tmp_path / "records").write_bytes(before)
    records.add(b"c")
    records.flush()
    assert (tmp_path / "records").read_bytes() == before + b"c"
