"""Environment steps of the parameters: those that all their policies have learned from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.process.clock import CountedClock, WallClock
from surreal_like.coordinator.learners import Learners
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.replay.shard_connection import LearnedSteps
from tests.api.stage import Stage, experiment


class Client:
    """A replay client of one shard."""

    def __init__(self, name: str) -> None:
        self.name, self.steps = name, LearnedSteps()

    @property
    def learned_steps(self) -> int:
        return self.steps.total

    def save_learned(self) -> dict[str, list[int]]:
        return {self.name: self.steps.state()}

    def restore_learned(self, learned: dict[str, list[int]]) -> None:
        self.steps = LearnedSteps(*learned.get(self.name, ()))


def make(*policies: str) -> Any:
    workers: dict[str, Any] = {
        policy: SimpleNamespace(
            replay=Client(f"replay-{policy}-0"),
            learner=SimpleNamespace(env_steps=0, link=SimpleNamespace(count_steps=None)),
        )
        for policy in policies
    }
    return Learners(workers, WallClock()), workers


def test_those_of_all_policies_count_once() -> None:
    learners, workers = make("left", "right")
    learners.set_learned_steps(0)
    workers["left"].replay.steps.add(1, (0, 30), consumes=True)
    workers["right"].replay.steps.add(1, (0, 12), consumes=False)
    assert learners.learned_steps == 42
    # What an update of either of them reads before it is made.
    assert {each.learner.link.count_steps() for each in workers.values()} == {42}


def test_they_are_those_of_the_donor_after_it_was_taken_over() -> None:
    learners, workers = make("default")
    workers["default"].replay.steps.add(1, (0, 30), consumes=True)
    learners.set_learned_steps(1000)
    assert workers["default"].learner.env_steps == 1000
    workers["default"].replay.steps.add(1, (0, 5), consumes=True)
    assert learners.learned_steps == 1005
    # And so they are after a restart of the learner.
    again, others = make("default")
    again.restore_learned(learners.save_learned())
    assert again.learned_steps == others["default"].learner.env_steps == 1005


def test_the_record_of_a_run_keeps_them(tmp_path: Path) -> None:
    one, other = (RunStats(experiment(), CountedClock()) for _ in range(2))
    one.learned = {"shards": {"replay-0": [3, 10, 20]}, "more": 5}
    one.save(tmp_path / "record.json", 4, 5)
    assert other.restore(tmp_path / "record.json", 4) is None
    assert other.learned == one.learned


@pytest.mark.parametrize(
    ("learned", "steps"), [({"shards": {"replay-0": [3, 10, 20]}, "more": 5}, 35), ({}, 0)]
)
def test_a_learner_that_goes_on_begins_with_them(
    learned: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    stage = Stage(experiment(), tmp_path / "run")
    try:
        record = RunStats(stage.config, stage.clock)
        record.learned = learned
        place = stage.folder.checkpoints / "learner"
        place.mkdir(parents=True)
        record.save(place / "record.json", 0, 3)
        for name in ("ps", "replay-0", "learner"):
            stage.start(name)
        newest = stage.service("learner")._learners.learner.link.publisher.newest
        assert newest.info["env_steps"] == steps
    finally:
        stage.close()
