"""A process whose only work is to supervise a run, and what signals mean to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from session.folder import RunFolder
from session.launchers.handle import open_run
from tests.polling import DEADLINE_SECONDS, until
from tests.session.launchers.parts import MODULE, make_config, make_run

ROOT = Path(__file__).resolve().parents[3]

SUPERVISOR = f"""
import sys
from session.config import Config
from session.folder import RunFolder
from session.launchers.detached import supervise
from session.launchers.fork_client import Preload
from session.launchers.local import LocalLauncher
from tests.session.launchers.parts import make_topology
folder = RunFolder(sys.argv[1])
config = Config.load_file(folder.config)
preload = Preload([{MODULE!r}])
launcher = LocalLauncher(config, make_topology(config), folder, preload=preload)
outcome = supervise(launcher, lambda event: None)
print(outcome.status, outcome.reason)
"""


def start(folder: RunFolder) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def all_run(folder: RunFolder, acts: dict[str, str]) -> bool:
    """Whether the supervisor knows that all run: before, it ends a learner by a signal."""
    if not folder.addresses.is_file():
        return False
    with open_run(folder) as run:
        return [row.state for row in run.status()] == ["running"] * len(acts)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_run_cleanly(run_folder: Path, number: signal.Signals) -> None:
    acts = {"learner": "learn", "agent-0": "work"}
    folder = make_run(run_folder, make_config(acts))
    with start(folder) as supervisor:
        until(lambda: all_run(folder, acts))
        supervisor.send_signal(number)
        said, _ = supervisor.communicate(timeout=DEADLINE_SECONDS)
    assert said == "interrupted interrupted\n"
    assert not folder.in_use
    assert dict(folder.read_result() or {})["iterations"] == 7


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once(run_folder: Path) -> None:
    acts = {"learner": "deaf", "agent-0": "stubborn"}
    folder = make_run(run_folder, make_config(acts, grace_seconds=60.0))
    with start(folder) as supervisor:
        until(lambda: all_run(folder, acts))
        supervisor.send_signal(signal.SIGINT)
        until((run_folder / "asked").exists)
        began = time.monotonic()
        supervisor.send_signal(signal.SIGINT)
        supervisor.communicate(timeout=DEADLINE_SECONDS)
        assert time.monotonic() - began < 5.0
    result = dict(folder.read_result() or {})
    assert result["status"] == "interrupted"
    assert {c["exit_code"] for c in result["components"].values()} == {-9}
    assert not folder.in_use
    assert not folder.sockets.exists()
