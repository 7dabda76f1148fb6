"""What the learner keeps of an evaluation, by the mode in which it was played."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from surreal_like.coordinator.stop_rule import Verdict
from tests.api.stage import Stage, experiment
from tests.surreal_like.coordinator.test_stop_rule import GREEDY, SAMPLED, score


@pytest.mark.parametrize(("mode", "kept"), [(GREEDY, True), (SAMPLED, False)])
def test_only_the_mode_that_judges_can_be_the_best(mode: str, kept: bool, tmp_path: Path) -> None:
    modes = f"session_config.evaluator={{num: 2, mode: [{GREEDY}, {SAMPLED}]}}"
    stage = Stage(experiment(modes), tmp_path / "run")
    try:
        for name in ("ps", "replay-0", "learner"):
            stage.start(name)
        learner = stage.service("learner")
        flat = np.zeros(learner._learners.flat_bytes["flat"], np.uint8)
        answer = learner.coordinator._add_evaluation(
            {**score(1.0, mode=mode), "mean_length": 1.0}, {"flat": flat}
        )
        assert answer == {"confirm": False, "best": 1.0 if kept else None}
        assert (stage.folder.checkpoints / "best").exists() is kept
    finally:
        stage.close()


def test_a_confirmation_after_a_budget_is_none(tmp_path: Path) -> None:
    stage = Stage(experiment("session_config.stop.eval_return=0.5"), tmp_path / "run")
    try:
        for name in ("ps", "replay-0", "learner"):
            stage.start(name)
        coordinator = stage.service("learner").coordinator
        flat = {"flat": np.zeros(coordinator.learners.flat_bytes["flat"], np.uint8)}
        first = {**score(1.0), "mean_length": 1.0}
        assert coordinator._add_evaluation(first, flat)["confirm"]
        coordinator.end(Verdict("stopped", False, "budget of 2 seconds used"))
        coordinator._add_evaluation({**first, "confirm": True}, flat)
        result = coordinator.record.result(coordinator.verdict, 1)
        assert result["goal_met"] is False
        assert result["eval"]["confirmed"] is None
        assert result["solved"]["greedy_seconds"] is None
    finally:
        stage.close()
