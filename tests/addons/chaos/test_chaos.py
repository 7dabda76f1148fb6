"""``surreal-like chaos``: a run that holds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from session.folder import RunFolder
from tests.runs.command import CARTPOLE, COMMAND, ROOT, Record

# A policy that has learned nothing has about 20.
LEARNED = 195.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_holds_and_learns_though_parts_are_killed_at_random(
    tmp_path: Path, record_property: Record
) -> None:
    kinds = ("agent", "replay", "learner", "ps", "evaluator", "tensorplex", "loggerplex")
    kills = [word for kind in kinds for word in ("--kill", f"{kind}=12s")]
    stop = "session_config.stop={seconds: 60}"
    often = "session_config.checkpoint.period=200"
    words = [CARTPOLE, stop, often, "--agents", "3", "--folder", str(tmp_path / "run")]
    done = subprocess.run(
        [*COMMAND, "chaos", *words, *kills, "--for", "50s", "--seed", "11"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" holds\n") == 9
    result = RunFolder(tmp_path / "run").read_result() or {}
    restarts = sum(part["restarts"] for part in result["components"].values())
    assert restarts > 7
    assert result["best_eval"]["mean_return"] >= LEARNED
    record_property("seen", f"{restarts} restarts, return {result['best_eval']['mean_return']:g}")
    assert result["experience"]["lost"] == 0
