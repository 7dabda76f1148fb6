"""What the learner keeps of an evaluation, by the mode in which it was played."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
