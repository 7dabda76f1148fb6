"""Gradients of agents are counted, aged and restored as rows are, whatever part is killed."""

from pathlib import Path

import pytest
import torch

from tests.runs.command import ROOT, Train
from tests.runs.test_killed_parts import never_fall

CONFIG = str(ROOT / "configs" / "cartpole_a3c.yaml")
MOST_LAG = 20
WORDS = (
    "session_config.agent.num=2",
    "session_config.stop={env_steps: 20000000, seconds: 150}",
    "session_config.checkpoint.seconds=2",
    # So that its state is in the checkpoints, too.
    "learner_config.algo.delay_compensation.weight=0.01",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parts_are_killed_while_gradients_are_under_way(run_folder: Path) -> None:
    with Train(run_folder, CONFIG, "--quiet", *WORDS) as train:
        train.until(lambda: train.line.get("iterations", 0) > 100)
        for name in ("agent-0", "replay-0", "learner", "agent-1"):
            train.kill(name)
            train.learn(100)
        train.signal(2)
        assert train.wait(60) == 130, train.words
    result, progress = train.result, train.progress
    restarts = {name: part["restarts"] for name, part in result["components"].items()}
    assert {restarts[name] for name in ("agent-0", "agent-1", "replay-0", "learner")} == {1}
    assert never_fall(progress)
    rows = result["experience"]
    fates = ("inserted", "dropped", "holes", "unacked")
    assert rows["pushed"] == sum(rows[fate] for fate in fates) > 0
    # A row is a gradient of many environment steps.
    assert result["env_steps"] > 20 * rows["pushed"]
    assert 0 < result["lag"]["max_versions"] <= MOST_LAG
    counts = [line["learn"]["gradients"] for line in progress if line["learn"]]
    # Those after the learner's checkpoint are lost with it: the count is that of the weights.
    assert counts == [line["iteration"] for line in progress if line["learn"]]
    assert progress[-1]["iterations"] > 400
    # The counts, the slots and the parameters of earlier versions are those of the checkpoint.
    newest = max((train.folder.checkpoints / "learner").glob("[0-9]*"), key=lambda f: int(f.name))
    saved = torch.load(newest / "optimizer.pt", weights_only=True)["saveables"]
    assert saved["gradient_counts"]["applied"] >= counts[-1]
    assert (saved["optimizer"]["rmsprop_tf"]["mean_square"] != 1.0).any()
    assert len(saved["delay_compensation"]["parameters"]) == MOST_LAG
