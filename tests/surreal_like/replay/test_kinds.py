"""All kinds of replay, selectors and views keep their contracts."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal_like.experience.chunk import Chunk
from surreal_like.replay.kinds import (
    FIFOReplay,
    PrioritizedReplay,
    UniformReplay,
)
from surreal_like.replay.replay import Replay
from surreal_like.replay.select.age import AgeRule, AgeSelector
from surreal_like.replay.select.fifo import FIFOSelector
from surreal_like.replay.select.priority import PrioritySelector
from surreal_like.replay.select.selector import Selector, UniformSelector
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.unrolls import BlockStorage, UnrollPlan
from surreal_like.replay.view.n_step import NStepView, View
from surreal_like.replay.view.unroll import UnrollView
from tests.contracts.replay import ReplayContract, RingContract, SelectorContract, ViewContract
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

NO_AGE = {"max_versions": 0, "half_life_versions": 0.0}


def unroll(number: int) -> Chunk:
    """An unroll of 4 steps of 2 streams."""
    chunk = chunk_of("FMMMM", "MTFMM", sequence=number, first_id=10 * number)
    chunk.overlap = 1
    return chunk


class TestUniform(ReplayContract):
    def make(self) -> Replay:
        return UniformReplay(**configs(capacity=500, min_size=1, algo={"n_step": 2}))


class TestAged(ReplayContract):
    def make(self) -> Replay:
        age = NO_AGE | {"half_life_versions": 3.0}
        return UniformReplay(**configs(capacity=500, min_size=1, age=age))


class TestTurns(ReplayContract):
    def make(self) -> Replay:
        turns = {"unroll_length": 5, "num_updates_per_train_iter": 9}
        session = {"sender": {"flush_iteration": 5}, "agent": {"num": 1}}
        return UniformReplay(**configs(capacity=500, min_size=1, iteration=turns, session=session))


class TestPrioritized(ReplayContract):
    def make(self) -> Replay:
        return PrioritizedReplay(**configs(capacity=500, min_size=1))


class TestFIFO(ReplayContract):
    again: float = 0.0

    def make(self) -> Replay:
        session = {"sender": {"flush_iteration": 4}}
        share: dict[str, Any] = {"replay_proportion": self.again, "replay_capacity": 80}
        return FIFOReplay(**configs(session=session, capacity=500, batch_size=4, **share))

    def chunk(self, number: int) -> Chunk:
        return unroll(number)


class TestFIFOWithReplayedUnrolls(TestFIFO):
    again = 0.5


class TestUniformSelector(RingContract):
    def make(self, capacity: int, seed: int = 0) -> Selector:
        return UniformSelector(capacity, seed=seed)


class TestPrioritySelector(RingContract):
    def make(self, capacity: int, seed: int = 0) -> Selector:
        return PrioritySelector(capacity, alpha=1.0, beta=lambda: 1.0, epsilon=1e-3, seed=seed)


def zeros(numbers: Any) -> Any:
    return np.zeros(len(numbers), np.int64)


class TestAgeSelector(RingContract):
    def make(self, capacity: int, seed: int = 0) -> Selector:
        rule = AgeRule(half_life_versions=2.0)
        given: Any = {"versions": zeros, "newest_version": lambda: 1}
        return AgeSelector(capacity, rule, seed=seed, **given)


class TestFIFOSelector(SelectorContract):
    def make(self, capacity: int, seed: int = 0) -> Selector:
        plan = UnrollPlan(1, 1, 1, 0, capacity, 0, 0)
        return FIFOSelector(plan, versions=zeros, newest_version=lambda: 0, seed=seed)


class TestNStepView(ViewContract):
    frames = 1

    def make(self) -> View:
        return NStepView(3, 0.5, frame_stack=self.frames)


class TestNStepViewOfStacks(TestNStepView):
    frames = 3


def kept_in(block: int) -> BlockStorage:
    """A storage that needs the first three blocks; the others take turns in the fourth."""
    made = BlockStorage(block, needed=lambda: range(min(made.next_number, 3 * block)))
    return made


class TestUnrollView(ViewContract):
    def make(self) -> View:
        return UnrollView(4, 2, 0.5)

    def make_storage(self) -> ColumnStorage:
        return kept_in(10)

    def chunk(self, number: int) -> Chunk:
        return unroll(number)
