"""The learners of a process: how often they pull their plan, and whose fault an error is."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.process.clock import WallClock
from surreal_like.coordinator.learners import Learners
from surreal_like.dataflow import NOT_READY, replay
from surreal_like.learner.learner import Learner
from surreal_like.learner.worker import LearnerWorker, Update
from tests.surreal_like.learner import test_joint

TAKEN = itertools.count(1)


class Noted:
    """A worker that notes its failures, and whose learner gets batches that a test puts.

    Attributes:
        failed: messages of its failures.
    """

    def __init__(self, learner: Learner, policy: str) -> None:
        self.learner, self.policy, self.failed = learner, policy, list[str]()
        self._waiting: list[Any] = []
        self._link = SimpleNamespace(
            next_batch=self._next, count_steps=lambda: 0, waiting=0, taken=0, ahead=None
        )
        learner._link = cast(Any, self._link)

    def put(self, seed: int) -> None:
        self._waiting.append(test_joint.rows(seed))

    def _next(self) -> Any:
        if not self._waiting:
            return NOT_READY
        self._link.taken = next(TAKEN)
        return self._waiting.pop(0)

    def fail(self, error: Exception) -> None:
        self.failed.append(str(error))
        self.learner.pop_updates()

    def count(self, now: float) -> tuple[list[Update], None]:
        return [Update({}, None, {}, False, self.policy) for _ in self.learner.pop_updates()], None


@pytest.fixture
def noted() -> dict[str, Noted]:
    return {name: Noted(each, name) for name, each in test_joint.by_rows().items()}


def learners_of(workers: dict[str, Noted]) -> Learners:
    return Learners(cast(dict[str, LearnerWorker], dict(workers)), WallClock(), joint=True)


def test_each_policy_learns_once_in_a_turn(noted: dict[str, Noted]) -> None:
    learners = learners_of(noted)
    for seed in range(2):
        for worker in noted.values():
            worker.put(seed)
    for _ in range(2):
        learned = learners.learn()
        assert learned.had_batch
        assert [update.policy for update in learned.updates] == ["left", "right"]
    assert not learners.learn().had_batch
    noted["right"].put(2)
    assert [update.policy for update in learners.learn().updates] == ["right"]


def test_an_error_is_that_of_the_policy_whose_batch_was_taken_last(
    noted: dict[str, Noted],
) -> None:
    def fail(batch: Any) -> Any:
        raise RuntimeError(f"bad row of {batch.policy}")

    right = noted["right"].learner
    right.flow = replay(right).for_each(fail)
    learners = learners_of(noted)
    for names, made in ((("left",), 1), (("left", "right"), 1), (("left",), 1)):
        for name in names:
            noted[name].put(0)
        learned = learners.learn()
        assert learned.had_batch
        assert len(learned.updates) == made
    assert noted["left"].failed == []
    assert noted["right"].failed == ["bad row of right"]
    assert learned.error is None
