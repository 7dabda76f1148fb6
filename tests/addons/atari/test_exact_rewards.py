"""Rewards of games are exact, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.addons.atari.atari import AtariSettings
from surreal_like.addons.atari.vector import AtariVector
from surreal_like.errors import DataError
from tests.surreal_like.env.test_exact_values import WRONG


def step_with(reward: float) -> None:
    class Games:
        def reset(self, seed: Any) -> Any:
            return np.zeros((1, 1, 2, 2), np.uint8), {"lives": np.array([3])}

        def step(self, actions: Any) -> Any:
            flags = np.zeros(1, np.bool_)
            rewards = np.array([reward])
            return *self.reset(0)[:1], rewards, flags, flags, {"lives": np.array([3])}

    vector = AtariVector("Breakout", AtariSettings(), seeds=[0])
    vector._games = Games()
    vector.reset()
    vector.step(np.zeros(1, np.int64))


@pytest.mark.parametrize("reward", WRONG["reward"])
def test_rewards_of_games_are_exact(reward: float) -> None:
    pytest.importorskip("ale_py")
    with pytest.raises(DataError, match=f"^reward: {WRONG['reward'][reward]}"):
        step_with(reward)
