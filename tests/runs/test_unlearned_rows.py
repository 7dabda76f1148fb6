"""Rows that were acted and never learned from are counted, and the setting to change is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from main.cli.summary import summary
from session.folder import RunFolder
from surreal_like import train
from surreal_like.experience.row_accounts import REMEDY, UNLEARNED

# Episodes of 200 steps, and an update for each unroll: a fetch per episode is 25 versions late.
SETTINGS: dict[str, Any] = {
    "session_config.stop": {"env_steps": 2000, "eval_episodes": 1},
    "session_config.agent.num": 1,
    # A round of a serial run is a millisecond, and an episode takes 25 of them.
    "session_config.evaluator.final_seconds": 0.01,
    "session_config.sender.flush_iteration": 8,
    "env_config.num_envs": 4,
    "learner_config.replay.batch_size": 4,
    "learner_config.algo.num_sgd_iter": 1,
}
EPISODE = {"session_config.agent": {"num": 1, "fetch_parameter_mode": "episode"}}


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_rows_that_are_too_old(tmp_path: Path, late: bool) -> None:
    settings = SETTINGS | (EPISODE if late else {})
    run = train(
        algorithm="ppo",
        env="gym:Pendulum-v1",
        launcher="serial",
        folder=tmp_path / "run",
        overrides=settings,
    )
    assert run.result["final_eval"] is None
    assert run.result["final_eval_reason"].startswith("no episode was over within 0.01 s")
    rows = run.result["experience"]
    gone = sum(rows[fate] for fate in UNLEARNED)
    assert rows["inserted"] == rows["sampled"] + gone + rows["rolled_back"] + rows["lost"]
    # Each update takes a batch; of what was sampled, some batches lay ready at the end.
    assert rows["learned"] == 4 * 8 * run.result["iterations"] <= rows["sampled"]
    assert (rows["learned"] > 0.97 * rows["inserted"]) != late
    assert (rows["too_old"] > 0.3 * rows["inserted"]) == late
    assert late or rows["too_old"] <= 0.01 * rows["inserted"]
    assert run.progress()[-1]["experience"]["too_old"] == rows["too_old"]
    lines = RunFolder(run.folder).events.read_text().splitlines()
    reported = [each for each in map(json.loads, lines) if each["event"] == "too_old"]
    assert [each["detail"].endswith(REMEDY) for each in reported] == [True] * late
    assert (REMEDY in "\n".join(summary(run))) == late
