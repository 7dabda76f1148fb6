"""What is said of a run whose folder could not be written to at its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.config.defaults import BASE_CONFIG
from session.errors import RunError
from session.folder import RunFolder
from session.launchers.launcher import Outcome
from surreal_like.addons.join.agents import RunWatch, _Stay
from surreal_like.run.train import result_of
from tests.main.conftest import Command

FAILED = Outcome("failed", "ps: gave no sign of life for 30 s")


def refuse(*_: object, **__: object) -> None:
    raise OSError(30, "Read-only file system")


def test_a_folder_that_became_read_only_is_given_back_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.lock()
    assert folder.refusal == ""
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        folder.unlock()
    assert not folder.in_use
    folder.result.write_text(json.dumps({"status": "running", "reason": ""}))
    with monkeypatch.context() as patched:
        patched.setattr("session.atomic_file.os.open", refuse)
        result = result_of(folder, FAILED)
    assert result["status"] == "failed"
    assert result["reason"] == (
        f"run folder {folder} cannot be written to (Read-only file system); {FAILED.reason}"
    )
    assert result_of(folder, FAILED)["reason"] == FAILED.reason


class Ending:
    """A supervised run that ends, but cannot write so."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.looks = 0
        self.ending_seconds = 0.1

    @property
    def running(self) -> bool:
        """True for the first looks."""
        self.looks += 1
        return self.looks < 4

    def stop(self, **_: object) -> None:
        """Take the command."""

    def wait(self, _: float) -> Outcome:
        """Give what the old result says."""
        return Outcome("running", "")

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing."""


def test_stop_says_that_a_run_has_ended_on_a_full_disk(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.result.write_text(json.dumps({"status": "running"}))
    monkeypatch.setattr("main.cli.operate._MARGIN_SECONDS", 0.5)
    BASE_CONFIG.copy().dump_file(folder.config)
    monkeypatch.setattr("main.cli.operate.open_found", Ending)
    said = command("stop", "./run")
    assert said.out == "run run has ended: its result could not be written; is the disk full?\n"
    assert said.code == 0


def stay(silent: bool, **signals: Any) -> Callable[[], int]:
    """Agents of another machine that have left by themselves, or after signals."""
    launched: Any = SimpleNamespace(outcome=Outcome("stopped", ""), components=dict)
    watch: Any = SimpleNamespace(silent=silent, silent_seconds=29.0, timeout_seconds=30.0)
    watch.resumable, watch.look_back = False, lambda: None
    watch.loss = lambda: RunWatch.loss(watch)
    interrupts: Any = SimpleNamespace(**{"count": 0, "terminated": False, **signals})
    agents = _Stay(launched, watch, interrupts, lambda line: None, Path("none"))
    if interrupts.count:
        launched.stop = lambda **own: None
        agents._leave_if_stopped()
    return agents.until_the_end


def test_agents_that_left_a_silent_run_did_not_see_its_end() -> None:
    assert stay(silent=False)() == 0
    with pytest.raises(RunError, match="no message of the run came for 29 s") as caught:
        stay(silent=True)()
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(("terminated", "code"), [(True, 0), (False, 130)])
def test_agents_leave_well_after_a_notice_of_the_machine(terminated: bool, code: int) -> None:
    assert stay(silent=False, count=1, terminated=terminated)() == code
