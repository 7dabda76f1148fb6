"""The system's clock is set while a run goes on: what is measured in seconds goes on evenly."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from main.cli.live_observer import LiveTable
from session.config import Config
from session.launchers.status import process_lives
from session.process.clock import Moment, WallClock
from session.process.heartbeat import Beat, State, read_beat, write_beat
from surreal_like.coordinator.run_stats import RunStats
from tests.session.made_run import made_config

Measure = Callable[[], float]
LONG = 1e9


def own_beat() -> Beat:
    return Beat("agent-0", 1, State.running, os.getpid(), time.time())


def age_of_a_beat(path: Path) -> Measure:
    beat = own_beat()
    return lambda: beat.age_seconds


def age_of_a_beat_in_a_file(path: Path) -> Measure:
    write_beat(path, own_beat())

    def measure() -> float:
        beat = read_beat(path, "agent-0")
        return LONG if beat is None or beat.late(30.0) else beat.age_seconds

    return measure


def life_of_a_process(path: Path) -> Measure:
    beat = own_beat()
    return lambda: 0.0 if process_lives(beat) else LONG


def begun_run() -> Config:
    config = made_config()
    config["run"] = {**Moment.at(time.time())._asdict(), "seconds_before": 0.0}
    return config


def seconds_of_a_run(path: Path) -> Measure:
    stats = RunStats(begun_run(), WallClock())
    return lambda: stats.wall_seconds


def seconds_of_a_run_whose_learner_is_started_again(path: Path) -> Measure:
    config = begun_run()
    return lambda: RunStats(config, WallClock()).wall_seconds


def seconds_of_a_live_table(path: Path) -> Measure:
    table = LiveTable(io.StringIO(), time.time())
    return lambda: table._seconds(None)


PLACES = (
    age_of_a_beat,
    age_of_a_beat_in_a_file,
    life_of_a_process,
    seconds_of_a_run,
    seconds_of_a_run_whose_learner_is_started_again,
    seconds_of_a_live_table,
)


@pytest.mark.parametrize("shift", [3600.0, -7200.0])
@pytest.mark.parametrize("place", PLACES)
def test_what_is_measured_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Callable[[Path], Measure], shift: float
) -> None:
    measure, real = place(tmp_path), time.time
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    assert 0.0 <= measure() < 600.0


def test_between_machines_the_wall_clock_counts() -> None:
    assert 99.0 < Moment(time.time() - 100.0, 1.0, time.monotonic()).seconds_since() < 200.0
    assert Moment(time.time() + 100.0, 1.0, time.monotonic()).seconds_since() == 0.0
