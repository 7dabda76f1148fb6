"""The disk that a run writes to is full for a while."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.command import CARTPOLE, Train, clean, wait_for


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(path)]
    subprocess.run(mount, check=True, timeout=10)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=10)


def fill(path: Path) -> None:
    """Writes until nothing more fits."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(300)
def test_a_full_disk_is_survived(small_disk: Path) -> None:
    stop = "session_config.stop={seconds: 40, eval_episodes: 20}"
    short = ("session_config.checkpoint.period=100", "session_config.heartbeat.timeout=6")
    with Train(small_disk / "run", CARTPOLE, stop, *short) as train:
        train.steps(3000)
        train.until(lambda: train.events_of("checkpoint"))
        ballast = small_disk / "ballast"
        fill(ballast)
        wait_for(10.0)
        lines = len(train.progress)
        ballast.unlink()
        train.until(lambda: len(train.progress) > lines + 1)
        assert train.wait(120) == 0, train.words
    result = train.result
    assert {part["restarts"] for part in result["components"].values()} == {0}
    assert clean(result)
    failed = train.events_of("checkpoint_failed")
    # Updates go on, and would be saved every tenth of a second.
    assert 0 < len(failed) < 20
