"""The plan is tried with sequences of zeros before a run."""

from __future__ import annotations

import pytest

from session.config.sections import sections_of
from session.errors import ConfigError
from surreal_like.addons.r2d2.r2d2 import R2D2
from surreal_like.addons.r2d2.replay import SequenceReplay
from surreal_like.experiment.preflight import check_plan
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve


def test_sequences_of_zeros_have_the_size_of_the_config() -> None:
    config = resolve(read_experiment(None, [], algorithm="r2d2", env_name="toy:recall"))
    given = sections_of(config)
    learner = R2D2.learner(**given)
    agent = R2D2.agent(**given, agent_id=0, agent_mode="training")
    check_plan(learner, agent, SequenceReplay, config)
    [trained] = learner.updates
    assert trained.batch.mask.sum(0).tolist() == [40.0, 40.0]
    assert trained.batch.obs.shape[0] == 61


def test_a_sequence_longer_than_its_replay_is_refused_before_it_is_tried() -> None:
    words = ["learner_config.replay.sequence.length=1000000000"]
    with pytest.raises(ConfigError, match=r"length = 1000000020 rows, more than .*capacity"):
        resolve(read_experiment(None, words, algorithm="r2d2", env_name="toy:chain"))
