"""Files are replaced as a whole; nothing of a run is written in place."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from session.atomic_file import write_atomically

ROOT = Path(__file__).resolve().parents[2]
IN_PLACE = re.compile(r"\.write_(?:text|bytes)\(|open\([^)]*[\"'][wx]b?[\"']")
# File -> why it may write in place: nobody reads that again, or only when it is whole.
WRITTEN_IN_PLACE = {
    "main/cli/own_environment.py": "an example for a user, who runs the command again",
    "session/addons/engines/processes.py": "a pipe",
    "session/addons/kubernetes/kustomize.py": "a plan for a user, who runs the command again",
    "session/addons/tmux/session.py": "a lock, which has no content",
    "session/process/entry.py": "a file of the kernel",
    "surreal_like/addons/analysis/export.py": "a folder that is renamed",
    "surreal_like/addons/chaos/faults.py": "zeros",
    "surreal_like/addons/recording/other_code.py": "a folder that is removed",
    "surreal_like/experiment/user_code.py": "an archive in memory",
    "surreal_like/experiment/resolve_process.py": "a folder that is removed",
    "surreal_like/network/files.py": "a folder that is renamed",
}


@pytest.mark.parametrize("content", ["new", b"new"])
def test_a_file_is_replaced_as_a_whole(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    before = path.stat().st_ino
    write_atomically(path, content)
    assert path.read_text() == "new"
    assert path.stat().st_ino != before
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half \ud800")
    with pytest.raises(TypeError):
        write_atomically(path, 3)  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_a_file_of_parts_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "weights.npy"
    write_atomically(path, (part for part in (b"a", b"bc")))
    assert path.read_bytes() == b"abc"

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise LookupError

    with pytest.raises(LookupError):
        write_atomically(path, parts())
    assert path.read_bytes() == b"abc"
    assert [each.name for each in tmp_path.iterdir()] == ["weights.npy"]


def test_a_private_file_is_that_of_its_owner(tmp_path: Path) -> None:
    write_atomically(tmp_path / "key", "x", private=True)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_nothing_of_a_run_is_written_in_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in ("session", "surreal_like", "main")
        for path in (ROOT / package).rglob("*.py")
        if "clients" not in path.parts and IN_PLACE.search(path.read_text())
    }
    # Some are files of add-ons, which may be taken out.
    assert found == {each for each in WRITTEN_IN_PLACE if (ROOT / each).exists()}
