"""The detached supervisor's entry: what it refuses, in one line."""

from pathlib import Path

import pytest

from main import supervisor
from session.folder import RunFolder


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "setproctitle", lambda title: None)
    assert supervisor.main(["--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("supervisor: ")
    assert str(RunFolder(tmp_path).config) in said
    assert said.count("\n") == 1
