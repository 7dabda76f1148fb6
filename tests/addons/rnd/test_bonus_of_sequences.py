"""The bonus of random network distillation in sequences of R2D2."""

from __future__ import annotations

import pytest

from surreal_like.addons.r2d2.r2d2 import R2D2Learner
from tests.addons.r2d2 import test_r2d2
from tests.addons.rnd.test_bonus import RND, novelty_of, slow_bonus


def test_sequences_get_the_bonus_at_the_transitions_that_are_learned() -> None:
    """C1."""
    agent, _ = test_r2d2.pair()
    batch, _ = test_r2d2.sequences(test_r2d2.acted(agent)[0])
    given = test_r2d2.options()
    given["learner_config"]["parts"] = [RND]
    learner = R2D2Learner(**given)
    learner.flow.counts()
    before, here = batch.rewards.clone(), batch.mask != 0
    expected = slow_bonus(novelty_of(learner), batch.obs[1:][here], 1.0)
    learner.learn(batch)
    added = batch.rewards - before
    assert added[here].tolist() == pytest.approx([0.5 * x for x in expected], rel=1e-3, abs=1e-6)
    assert not added[~here].any()
