"""Metrics and logs are lost, and nothing else is."""

import os
import signal
from pathlib import Path

import pytest

from session.process.heartbeat import read_beats
from tests.runs.command import CARTPOLE, Train, clean

TELEMETRY = ("tensorplex", "loggerplex")
# So many that the buffers of clients run over within the seconds of a test.
MANY_RECORDS = "session_config.tensorplex.update_schedule=0.001"
NEVER_RESTART = "session_config.launcher.max_restarts=0"


def check(train: Train) -> None:
    """The run ended solved, nobody was declared dead, and what was dropped has been counted."""
    result = train.result
    assert result["goal_met"] is True
    assert clean(result)
    others = {k: v for k, v in result["components"].items() if k not in TELEMETRY}
    assert {part["restarts"] for part in others.values()} == {0}
    assert {part["exit_code"] for part in others.values()} == {0}
    beats = read_beats(train.folder.alive)
    assert beats["learner"].dropped_records > 0
    assert beats["agent-0"].dropped_records > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_and_not_restarted(run_folder: Path) -> None:
    with Train(run_folder, CARTPOLE, MANY_RECORDS, NEVER_RESTART) as train:
        for name in TELEMETRY:
            os.kill(train.running_beat(name).pid, signal.SIGKILL)
        assert train.wait(240) == 0, train.words
    check(train)
    ends = train.result["components"]
    assert {ends[name]["restarts"] for name in TELEMETRY} == {0}
    assert {ends[name]["exit_code"] for name in TELEMETRY} == {-signal.SIGKILL}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stopped_for_good(run_folder: Path) -> None:
    """Their sockets stay open, and nobody reads what comes."""
    goal = "session_config.stop.eval_return=195"
    with Train(run_folder, CARTPOLE, MANY_RECORDS, NEVER_RESTART, goal) as train:
        for name in TELEMETRY:
            os.kill(train.running_beat(name).pid, signal.SIGSTOP)
        assert train.wait(240) == 0, train.words
    assert train.result["goal_met"] is True
    assert clean(train.result)
