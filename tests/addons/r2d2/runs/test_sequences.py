"""Sequences from agents through replay to a learner, in one thread."""

from pathlib import Path

import pytest

from tests.runs.command import Train, clean


@pytest.mark.slow
def test_a_memory_is_learned_from_sequences(tmp_path: Path) -> None:
    """With sequences that begin in mid-episode, a burn-in and priorities."""
    words = (
        *("--algorithm", "r2d2", "--env", "toy:recall", "--on", "serial", "--quiet"),
        "env_config.env_args={arms: 2, delay: 3}",
        "env_config.num_envs=8",
        "learner_config.model={hidden_sizes: [16], memory_size: 16}",
        "learner_config.replay={min_size: 64, samples_per_insert: 8}",
        "learner_config.replay.sequence={length: 4, burn_in: 2, period: 2}",
        "learner_config.algo={learning_rate: 5e-3, epsilon: {steps: 3000}}",
        "session_config.stop={eval_return: 0.95, env_steps: 40000, eval_episodes: 20}",
    )
    with Train(tmp_path / "run", *words) as train:
        assert train.wait(300) == 0, train.words
    assert train.result["goal_met"] is True
    assert clean(train.result)
    assert train.result["experience"]["sampled"] > 0
