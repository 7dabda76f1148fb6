"""A run that goes on while the package changes: its commands then are of another version."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session.folder import RunFolder
from session.launchers.handle import open_run
from session.wire.codec import PROTOCOL_VERSION
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, Process, clean

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

THEIRS = PROTOCOL_VERSION + 1
# The command of a version that speaks another protocol.
NEWER = f"""
import sys
import session.wire.codec
session.wire.codec.PROTOCOL_VERSION = {THEIRS}
from main.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.fixture
def run(run_folder: Path) -> Iterator[RunFolder]:
    folder = RunFolder(run_folder)
    words = ("launch", CARTPOLE, "--folder", str(run_folder), "session_config.stop={seconds: 120}")
    with Process([*COMMAND, *words], run_folder.parent / "launch.txt") as launch:
        assert launch.wait() == 0, launch.words
    yield folder
    if folder.in_use:
        with open_run(folder) as handle:
            handle.stop(interrupted=True)
            handle.wait(60.0)


def newer(run: RunFolder, *words: str) -> tuple[int, str]:
    """Exit code and words of a command of the newer version."""
    argv = [sys.executable, "-c", NEWER, words[0], str(run), *words[1:]]
    with Process(argv, run.path.parent / f"{words[0]}.txt") as command:
        return command.wait(), command.words


def test_status_and_stop_of_another_version_work(run: RunFolder) -> None:
    until(lambda: run.last_progress().get("env_steps", 0) > 1000)
    code, table = newer(run, "status")
    assert code == 0, table
    for name in ("learner", "replay-0", "agent-1", "ps"):
        assert name in table
    code, words = newer(run, "restart", "agent-0")
    assert code == 2
    assert f"'supervisor' speaks protocol {PROTOCOL_VERSION}, this is protocol {THEIRS}" in words
    assert "install the same version" in words
    code, words = newer(run, "stop")
    assert code == 0, words
    assert not run.in_use
    result = dict(run.read_result() or {})
    assert (result["status"], result["reason"]) == ("interrupted", "got SIGTERM")
    assert clean(result)
