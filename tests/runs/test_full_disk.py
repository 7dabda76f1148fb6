"""The disk that a run writes to is full for a while."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.command import CARTPOLE, Train, clean, wait_for
from tests.runs.small_disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        with small_disk(path, 16):
            yield path
    except subprocess.CalledProcessError:
        pytest.skip("no file system can be mounted here")


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(300)
def test_a_full_disk_is_survived(disk: Path) -> None:
    stop = "session_config.stop={seconds: 30, eval_episodes: 20}"
    short = ("session_config.checkpoint.period=100", "session_config.heartbeat.timeout=6")
    with Train(disk / "run", CARTPOLE, stop, *short) as train:
        train.steps(3000)
        train.until(lambda: train.events_of("checkpoint"))
        ballast = disk / "ballast"
        fill(ballast)
        wait_for(10.0)
        lines = len(train.progress)
        ballast.unlink()
        train.until(lambda: len(train.progress) > lines + 1)
        assert train.wait(120) == 0, train.words
    result = train.result
    assert {part["restarts"] for part in result["components"].values()} == {0}
    assert clean(result)
    # Each better evaluation tries to save the best parameters: there is no bound on those.
    failed = [
        event for event in train.events_of("checkpoint_failed") if ".best" not in event["detail"]
    ]
    # Updates go on, and would be saved every tenth of a second.
    assert 0 < len(failed) < 20
