"""The command serve beside a run that goes on, with many clients."""

from __future__ import annotations

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from surreal_like.addons.gateway.clients.surreal_client import connect
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, Process, Train

CLIENTS, VERSIONS = 32, 4


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_many_clients_follow_a_run_that_goes_on(run_folder: Path) -> None:
    stop = "session_config.stop={seconds: 3600}"
    saves = "session_config.checkpoint.period=300"
    with ExitStack() as stack:
        train_ = stack.enter_context(Train(run_folder, CARTPOLE, "--quiet", stop, saves))
        train_.until(lambda: len(list((run_folder / "checkpoints" / "learner").glob("*"))) > 1)
        argv = [*COMMAND, "serve", str(run_folder), "--checkpoint", "latest", "--port", "0"]
        server = stack.enter_context(Process([*argv, "--follow"], run_folder.parent / "serve.txt"))
        found = until(lambda: re.search(r"127\.0\.0\.1:(\d+)", server.words))
        address = f"127.0.0.1:{found.group(1)}"
        assert "checkpoint " in server.words
        with ThreadPoolExecutor(CLIENTS) as pool:
            played = list(pool.map(lambda _: follow(address), range(CLIENTS)))
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        train_.signal(signal.SIGINT)
        assert train_.wait() == 130
        assert "Traceback" not in server.words
    # Each request was answered once, and no version was older than the one before.
    assert all(length == steps for _, steps, length in played)
    assert all(versions == sorted(versions) for versions, _, _ in played)


def follow(address: str) -> tuple[list[int], int, int]:
    """Plays until some versions have acted; returns them, the steps, and what was counted."""
    steps, length = 0, -1
    with connect(address) as session:
        session.reset([0.0] * 4)
        versions = [session.version]
        while len(versions) < VERSIONS:
            session.step(1.0, [0.0] * 4)
            steps += 1
            if session.version != versions[-1]:
                versions.append(session.version)
        length = session.end(1.0).length
    return versions, steps + 1, length
