"""Batches that cannot be had or learned from: kept, reported, and the end of a run at the last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.config.sections import sections_of
from session.errors import RunError
from session.process.clock import CountedClock
from surreal_like import ExpTuple, TupleReplay
from surreal_like.algorithm.dqn import DQNLearner
from surreal_like.coordinator.service import LearnerService
from surreal_like.data.batch import Sampled
from surreal_like.errors import DataError
from surreal_like.learner.bad_updates import NotFinite, Quarantine
from surreal_like.learner.metrics import check_metrics
from surreal_like.replay.batch_requests import Refusals
from surreal_like.replay.batch_server import ReplayService
from tests.api.stage import Stage, experiment

HERE = "tests/surreal_like/learner/test_bad_batches.py"
STEP = "in learn, operator 2 of the plan of Choosy"


class Choosy(DQNLearner):
    """Raises at some calls of ``learn``, or returns something else than metrics."""

    bad: Callable[[int], bool] = staticmethod(lambda call: False)
    returns: Any = ()
    calls = 0

    def learn(self, batch: Any) -> Any:
        self.calls += 1
        if self.bad(self.calls):
            raise IndexError(f"index 99 at call {self.calls}")
        metrics = super().learn(batch)
        return metrics if self.returns == () else self.returns


class Vague(TupleReplay):
    """Keeps no tuples of ours, and leaves out of a batch what cannot be derived then."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.memory: list[dict[str, Any]] = []

    def insert(self, exp_tuple: ExpTuple) -> None:
        self.memory.append({"obs": exp_tuple.obs, "action": exp_tuple.action})

    def sample(self, batch_size: int) -> list[dict[str, Any]]:
        return self.memory[-batch_size:]

    def aggregate_batch(self, sample: Any) -> dict[str, Any]:
        zeros = np.zeros(len(sample), np.float32)
        return {
            "obs": np.stack([one["obs"][0] for one in sample]),
            "obs_next": np.stack([one["obs"][1] for one in sample]),
            "actions": np.stack([one["action"] for one in sample]),
            "rewards": zeros,
            "dones": zeros,
        }

    def start_sample_condition(self) -> bool:
        return len(self.memory) >= 64


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals are borne for a shorter time."""
    monkeypatch.setattr("surreal_like.replay.batch_requests._SECONDS", 0.3)
    monkeypatch.setattr("surreal_like.replay.batch_requests._MOST", 3)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(experiment("learner_config.algo.n_step=2"), tmp_path / "run")
    made.listen("loggerplex")
    yield made
    made.close()


def learn(stage: Stage, replay: Any = None, **changes: Any) -> Any:
    """Starts everything; the service of a learner with these attributes."""
    kind = type("Choosy", (Choosy,), changes)
    kind.learn = Choosy.learn  # type: ignore[attr-defined]
    build = None
    if replay is not None:
        build = lambda c: ReplayService(c, replay(**sections_of(c.config)))  # noqa: E731
    stage.start("ps")
    stage.start("replay-0", build=build)
    stage.start("agent-0")
    stage.start(
        "learner",
        build=lambda c: LearnerService(c, {"default": kind(**sections_of(c.config))}, stage.folder),
    )
    return stage.service("learner")


def events(stage: Stage, kind: str) -> list[str]:
    records = stage.records("loggerplex")
    return [str(record["detail"]) for record in records if record.get("event") == kind]


def line_of_raise() -> int:
    return Choosy.learn.__code__.co_firstlineno + 3


# -- learn() raises ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_for_which_learn_raises_is_kept_and_left_out(stage: Stage) -> None:
    service = learn(stage, bad=staticmethod(lambda call: call in (2, 3, 6)))
    stage.until(lambda: service._learners.learner.iteration >= 8)
    assert service.coordinator.verdict is None
    lines = stage.until(lambda: len(found := events(stage, "bad_update")) == 3 and found)
    place = f"IndexError('index 99 at call 2'), in Choosy.learn ({HERE}:{line_of_raise()}); {STEP}"
    folder = stage.folder.quarantine
    assert lines[0] == f"iteration 1: {place}; its batch: {folder / '1.json'}"
    kept = json.loads((folder / "1.json").read_text())
    assert kept["error"] == place
    assert "Traceback" in kept["traceback"]
    assert kept["replay"] == "replay-0/1"
    with np.load(folder / "1.npz") as columns:
        assert columns["obs"].shape == (16, 4)
        assert {name: f"{a.dtype} {list(a.shape)}" for name, a in columns.items()} == (
            kept["columns"]
        )
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{number}.{suffix}" for number in (1, 2, 3) for suffix in ("json", "npz")
    ]


def test_a_kept_batch_names_the_senders_of_its_shard(stage: Stage) -> None:
    worker = learn(stage)._learners.owner
    stage.until(worker.replay.counts)
    stage.until(lambda: worker.learner.sampled)
    worker._set_aside(ValueError("wrong"))
    kept = json.loads((stage.folder.quarantine / "1.json").read_text())
    ((sender, rows),) = kept["senders"].items()
    assert sender.partition("/")[0] == "agent-0"
    assert rows["inserted"] > 0 == rows["dropped"]


def test_the_third_in_a_row_ends_the_run_with_the_first_error(stage: Stage) -> None:
    service = learn(stage, bad=staticmethod(lambda call: call > 4))
    verdict = stage.until(lambda: service.coordinator.verdict)
    assert service._learners.learner.calls == 7
    place = f"in Choosy.learn ({HERE}:{line_of_raise()}); {STEP}"
    assert (verdict.status, verdict.reason) == (
        "failed",
        f"learner: IndexError('index 99 at call 5'), {place}",
    )


def test_no_more_than_ten_batches_are_kept_over_all_starts(tmp_path: Path) -> None:
    sampled = Sampled({"obs": np.zeros((2, 3))}, 0, 1, {})
    kept = []
    for start in range(3):
        quarantine = Quarantine(tmp_path / "quarantine")
        for _ in range(5):
            kept.append(quarantine.add(sampled, ValueError("no"), start))
            quarantine.clear()
    assert [path is not None for path in kept] == [True] * 10 + [False] * 5
    assert len(list((tmp_path / "quarantine").iterdir())) == 20


def test_what_is_not_finite_has_its_own_limit_and_is_kept_once(tmp_path: Path) -> None:
    sampled = Sampled({"obs": np.zeros((2, 3))}, 0, 1, {})
    quarantine = Quarantine(tmp_path / "quarantine")
    paths = []
    for number in range(10):
        assert quarantine.end() is None, number
        paths.append(quarantine.add(sampled, NotFinite("NaN"), number))
    assert isinstance(quarantine.end(), NotFinite)
    assert [path is not None for path in paths] == [True] + 9 * [False]
    quarantine.clear()
    assert quarantine.end() is None


# -- learn() returns something else --------------------------------------------------------------


def test_learn_may_return_nothing(stage: Stage) -> None:
    service = learn(stage, returns=None)
    stage.until(lambda: service._learners.learner.iteration >= 3)
    assert service.coordinator._report.line["learn"] == {}


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1.0], "a list"),
        (torch.tensor(1.0), "a Tensor"),
        ({"loss": "low"}, "'loss': 'low'"),
        ({"loss": torch.zeros(3)}, r"'loss': a Tensor torch.Size\(\[3\]\)"),
        ({3: 1.0}, "3: a float"),
    ],
)
def test_anything_else_is_refused_in_one_line(returned: Any, said: str) -> None:
    line = Choosy.learn.__code__.co_firstlineno
    with pytest.raises(DataError, match=f"learn.. returned {said}, expected nothing") as error:
        check_metrics(returned, Choosy.learn)
    assert str(error.value).endswith(f"in Choosy.learn ({HERE}:{line})")


def test_numbers_of_every_kind_are_metrics() -> None:
    metrics = {"a": 1, "b": 2.0, "c": np.float32(3), "d": torch.tensor(4.0), "e": True}
    assert check_metrics(metrics, Choosy.learn) == metrics


# -- replay refuses ------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_replay_that_refuses_every_request_ends_the_run_with_its_reason(stage: Stage) -> None:
    service = learn(stage, Vague)
    verdict = stage.until(lambda: service.coordinator.verdict)
    reason = "replay-0: Vague.aggregate_batch() left 'discounts' out"
    assert verdict.status == "failed"
    assert reason in verdict.reason
    lines = stage.until(lambda: events(stage, "refused"))
    assert [reason in line for line in lines] == [True]


@pytest.mark.usefixtures("impatient")
def test_a_script_gets_the_reason_too(stage: Stage) -> None:
    stage.start("ps")
    stage.start("replay-0", build=lambda c: ReplayService(c, Vague(**sections_of(c.config))))
    stage.start("agent-0")
    learner = DQNLearner(**sections_of(stage.config))
    learner.connect(stage.context("learner"))
    learner.publish_parameter(0)
    stage.context("learner").pulse = lambda: stage.rounds(0.02)
    with pytest.raises(RunError, match=r"every request is refused: replay-0: Vague\.aggregate_b"):
        next(learner.fetch_iterator())


def test_refusals_count_only_while_no_batch_comes() -> None:
    clock = CountedClock()
    refusals = Refusals(clock)
    for _ in range(5000):
        clock.advance()
        refusals.add("replay-0", "no")
        refusals.clear()
        refusals.check()
    assert refusals.pop_new() == ["replay-0: no"]
    assert refusals.pop_new() == []
    for _ in range(2900):
        clock.advance()
        refusals.add("replay-0", "no")
        refusals.check()
    refusals.add("replay-1", "neither")
    assert refusals.pop_new() == ["replay-1: neither"]
    for _ in range(200):
        clock.advance()
    with pytest.raises(RunError, match=r"replay-0: no \(2901 times\)"):
        refusals.check()
