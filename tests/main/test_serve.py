"""The command serve, with the program of its page as a client."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from surreal_like import train
from tests.runs.command import COMMAND, ROOT, Process, until

PAGE = (ROOT / "docs" / "serve.md").read_text()
ADDRESS = "127.0.0.1:7100"


def program(port: str) -> str:
    """The client of the page, with another port."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert ADDRESS in block
    return str(block).replace(ADDRESS, f"127.0.0.1:{port}")


@pytest.mark.slow
def test_V2_the_client_of_the_page_plays(tmp_path: Path) -> None:
    settings = {
        "learner_config.replay.min_size": 64,
        "learner_config.model.hidden_sizes": [16],
        "session_config.stop": {"env_steps": 200, "eval_episodes": 2},
    }
    run = tmp_path / "run"
    train(algorithm="dqn", env="toy:chain", overrides=settings, launcher="serial", folder=run)
    argv = [*COMMAND, "serve", str(run), "--checkpoint", "latest", "--port", "0", "--follow"]
    with Process(argv, tmp_path / "serve.txt") as server:
        found = until(lambda: re.search(r"127\.0\.0\.1:(\d+)", server.words))
        assert "checkpoint " in server.words
        code = program(found.group(1))
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert re.fullmatch(rb"(return [-\d.]+\n){3}", said.stdout)
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        assert "Traceback" not in server.words
