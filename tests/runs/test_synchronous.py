"""Agents that wait for the learner wait for no one that is gone."""

from pathlib import Path

import pytest

from tests.runs.command import ROOT, Train, balanced

WORDS = (
    "learner_config.algo.synchronous=true",
    "env_config.num_envs=16",
    "session_config.agent.num=2",
    # The default, with which what a dead learner had asked for took what its successor needed.
    "session_config.learner.prefetch_requests=2",
    "session_config.stop={env_steps: 2000000, seconds: 150}",
)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_synchronous_run_goes_on_when_a_part_is_killed(run_folder: Path) -> None:
    config = str(ROOT / "configs" / "cartpole_ppo.yaml")
    with Train(run_folder, config, "--quiet", *WORDS) as train:
        train.until(lambda: train.line.get("iterations", 0) > 20)
        for name in ("agent-1", "replay-0", "ps", "learner"):
            train.kill(name)
            train.learn(20)
        train.signal(2)
        assert train.wait(60) == 130, train.words
    restarts = {name: part["restarts"] for name, part in train.result["components"].items()}
    assert {restarts[name] for name in ("agent-1", "replay-0", "ps", "learner")} == {1}
    assert balanced(train.result)
