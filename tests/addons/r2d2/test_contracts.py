"""The contracts of kinds of replay, and of their views."""

from __future__ import annotations

from surreal_like.addons.r2d2.replay import SequenceReplay, SequenceView
from surreal_like.replay.replay import Replay
from surreal_like.replay.view.n_step import View
from tests.contracts.replay import ReplayContract, ViewContract
from tests.surreal_like.replay.configs import configs


class TestSequences(ReplayContract):
    def make(self) -> Replay:
        sequence = {"length": 3, "burn_in": 2, "period": 2}
        return SequenceReplay(**configs(capacity=500, min_size=1, sequence=sequence))


class TestSequenceView(ViewContract):
    def make(self) -> View:
        return SequenceView(4, 0.5, burn_in=1, period=2)
