"""The lines of ``plan --format shell``, each in a process of its own, and nobody who supervises."""

from pathlib import Path

import pytest

from tests.runs.by_hand import ByHand
from tests.runs.command import clean

SHORT = "session_config.stop={env_steps: 4000, eval_episodes: 10}"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_every_process_ends_by_itself(run_folder: Path, transport: str) -> None:
    with ByHand(run_folder, SHORT, f"session_config.launcher.transport={transport}") as run:
        run.start()
        ends = run.wait(180)
        words = {name: process.words for name, process in run.processes.items()}
    assert ends == dict.fromkeys(run.lines, 0), words
    # On a busy machine one that is quick says for whom it waits.
    waits = "nothing answers there"
    assert {
        line for said in words.values() for line in said.splitlines() if waits not in line
    } == set()
    assert run.result["status"] == "stopped"
    assert run.result["env_steps"] >= 4000
    assert clean(run.result)
    assert not run.folder.sockets.exists()
    assert (run_folder / "logs" / "all.log").read_text()
    assert list((run_folder / "tensorboard").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_any_order_will_do(run_folder: Path) -> None:
    """Clients first, each of them waiting for a server that is not there yet."""
    with ByHand(run_folder, SHORT) as run:
        for name in reversed(run.lines):
            run.start(name)
        ends = run.wait(180)
    assert ends == dict.fromkeys(run.lines, 0)
    assert run.result["status"] == "stopped"
    assert clean(run.result)
