"""Sequences from agents through replay to a learner, in one thread."""

from pathlib import Path

import pytest

from tests.runs.command import ROOT, Train, clean


@pytest.mark.slow
def test_a_chain_is_learned_from_sequences(tmp_path: Path) -> None:
    words = (
        *("--algorithm", str(ROOT / "tests/runs/sequence_learner.py"), "--env", "toy:chain"),
        *("--on", "serial", "--quiet"),
        "learner_config.replay={batch_size: 16, min_size: 32, samples_per_insert: 4}",
        "learner_config.replay.sequence={length: 6, burn_in: 2, period: 3}",
        "learner_config.algo={learning_rate: 5e-3, epsilon: {steps: 1000}}",
        "session_config.stop={eval_return: 0.6, env_steps: 20000, eval_episodes: 5}",
    )
    with Train(tmp_path / "run", *words) as train:
        assert train.wait(300) == 0, train.words
    assert train.result["goal_met"] is True
    assert clean(train.result)
    assert train.result["experience"]["sampled"] > 0
