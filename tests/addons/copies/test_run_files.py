"""Files of a run that are copied: checkpoints are whole, or left out."""

from pathlib import Path

import pytest

from session.addons.copies.run_files import open_files
from session.checkpoint import STATE, Checkpoints, write_sealed
from session.folder import RunFolder
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


@needs("sinks")
def test_files_of_sinks_go_along_before_the_result(tmp_path: Path) -> None:
    for name in ("result.json", "metrics.csv", "events.jsonl", "other.csv"):
        (tmp_path / name).touch()
    names = [each.name for each in open_files(RunFolder(tmp_path))]
    assert names == ["events.jsonl", "metrics.csv", "result.json"]
