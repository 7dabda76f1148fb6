"""Files of a run that are copied: which there are, what is read of them, and what is written."""

from pathlib import Path

import pytest

from session.addons.copies.run_files import RunFiles, StoredFile, open_files, write_file
from session.checkpoint import STATE, write_sealed
from session.errors import CheckpointError
from session.folder import RunFolder
from session.newest_checkpoint import Checkpoints
from tests.add_ons import needs


@pytest.mark.parametrize("files", [None, [[]], {"a": {"bytes": 0}}, {"../x": {}}], ids=str)
def test_a_checkpoint_whose_list_of_files_is_damaged_is_left_out(
    tmp_path: Path, files: object
) -> None:
    folder = RunFolder(tmp_path)
    path = Checkpoints(folder.checkpoints / "learner").save(1, {}, lambda beside: None)
    assert [each.name for each in open_files(folder)] == ["checkpoints/learner/1/state.json"]
    write_sealed(path / STATE, {"files": files})
    assert list(open_files(folder)) == []


def test_only_files_that_have_changed_are_read_again(tmp_path: Path) -> None:
    folder, read = RunFolder(tmp_path), list[bytes]()
    files = RunFiles(folder)

    def find() -> list[bytes]:
        read.clear()
        files.find(on_block=lambda name, block: read.append(block))
        return read

    folder.progress.write_text("a line\n")
    folder.events.write_text("an event\n")
    assert find() == [b"a line\n", b"an event\n"]
    assert find() == []
    folder.progress.write_text("another line\n")
    assert find() == [b"another line\n"]
    folder.progress.unlink()
    assert list(files.find()) == ["events.jsonl"]
    assert files.find(lambda name: name != "events.jsonl") == {}
    assert find() == []


def test_a_block_whose_file_has_changed_since_is_not_there(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    files = RunFiles(folder)
    folder.progress.write_text("a line\n")
    [block] = files.find()["progress.jsonl"].blocks
    assert files.read(block) == b"a line\n"
    folder.progress.write_text("another\n")
    assert files.read(block) is None
    folder.progress.unlink()
    assert files.read(block) is None


def test_a_file_without_its_checksum_leaves_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.progress.write_text("a line\n")
    stored = RunFiles(folder).find()["progress.jsonl"]
    path = tmp_path / "below" / "copy"
    write_file(path, stored, [b"a ", b"line\n"], "copy")
    wrong = StoredFile(stored.bytes + 1, stored.blake2b, stored.blocks)
    for other, content in ((stored, b"a lime\n"), (wrong, b"a line\n")):
        with pytest.raises(CheckpointError, match="the copy has not its checksum"):
            write_file(path, other, [content], "the copy")
    assert [each.name for each in path.parent.iterdir()] == ["copy"]
    assert path.read_text() == "a line\n"


@needs("sinks")
def test_files_of_sinks_go_along_before_the_result(tmp_path: Path) -> None:
    for name in ("result.json", "metrics.csv", "events.jsonl", "other.csv"):
        (tmp_path / name).touch()
    names = [each.name for each in open_files(RunFolder(tmp_path))]
    assert names == ["events.jsonl", "metrics.csv", "result.json"]
