"""Sixty-four clients of which one is killed each second, cut connections, a gateway that dies."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.addons.gateway.runs.test_gateway import gateway
from tests.runs.command import CARTPOLE, ROOT, Process, Train, balanced, wait_for

STORM = str(ROOT / "tests" / "addons" / "gateway" / "runs" / "storm.py")
CLIENTS, SECONDS = 64, 18
# A policy that has learned nothing has about 20.
LEARNED = 60.0


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_storm_hurts_no_session(run_folder: Path) -> None:
    stop = f"session_config.stop={{seconds: {2 * SECONDS}}}"
    port, words = gateway(stop)
    argv = [sys.executable, STORM, str(port), "--clients", str(CLIENTS), "--seconds", str(SECONDS)]
    with Train(run_folder, CARTPOLE, "--quiet", *words) as train:
        train.running_beat("gateway-0")
        with Process(
            argv, run_folder.parent / "storm.txt", PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1"
        ) as storm:
            train.steps(1000)
            for _ in range(2):
                wait_for(SECONDS / 4)
                train.kill("gateway-0")
            assert train.wait(300) == 0, train.words
            assert storm.wait(60) == 0, storm.words
        cut, found = (json.loads(line) for line in storm.words.splitlines()[-2:])
    result = train.result
    assert found["killed"] == SECONDS
    assert found["codes"] == [0] * CLIENTS
    assert min(cut["cut"].values()) > SECONDS / 2
    assert result["components"]["gateway-0"]["restarts"] == 2
    assert balanced(result)
    # No step counts twice.
    assert result["env_steps"] <= found["asked"]
    assert result["best_eval"]["mean_return"] > LEARNED
    assert result["experience"]["dropped"] == 0
