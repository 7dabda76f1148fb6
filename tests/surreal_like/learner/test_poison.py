"""Senders of bad batches are named; guests that repeat are fenced, and a learner goes back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.config.sections import sections_of
from surreal_like.algorithm.dqn import DQNLearner
from surreal_like.coordinator.service import LearnerService
from surreal_like.data.batch import Sampled
from surreal_like.learner.bad_updates import (
    BAD_LIMIT,
    BadUpdates,
    NotFinite,
    Quarantine,
    count_senders,
    words,
)
from surreal_like.replay.receiver import ExperienceReceiver
from tests.api.stage import Stage, experiment

AGENTS = {0: "agent-0", 1: "agent-1000", 2: "agent-1001"}
NAN = np.float32(np.nan)


def batch(places: Any, **columns: Any) -> dict[str, Any]:
    senders = np.array(places, np.int32)
    zeros = {"obs": np.zeros((*senders.shape, 3), np.float32)}
    return {"sender": senders, **zeros, **columns}


def test_senders_are_counted_by_rows() -> None:
    assert count_senders(batch([0, 1, 1, 1]), AGENTS) == {"agent-1000": 3, "agent-0": 1}
    assert count_senders(batch([0, -1, 7]), AGENTS) == {"unknown": 2, "agent-0": 1}
    assert count_senders({"obs": np.zeros(3)}, AGENTS) == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, 2e12, -3e38])
def test_if_some_rows_explain_the_update_only_their_senders_count(value: float) -> None:
    rewards = np.array([1, value, 1e12, -5], np.float32)
    assert count_senders(batch([0, 1, 2, 1], rewards=rewards), AGENTS) == {"agent-1000": 1}
    # Of sequences time comes first; observations have a row, or several, more.
    obs = np.zeros((4, 2, 3), np.float32)
    obs[3, 1, 2] = value
    found = count_senders(batch([[0, 2]] * 3, obs=obs, mask=np.ones((3, 2))), AGENTS)
    assert found == {"agent-1001": 3}


def counts(guests: Mapping[str, bool]) -> dict[str, Any]:
    rows = {"inserted": 1, "dropped": 0}
    senders = {
        f"{name}/1": {**rows, "guest": guest, "place": place}
        for place, (name, guest) in enumerate(guests.items())
    }
    return {"replay-0/1": {"senders": senders}}


def test_a_sender_repeats_that_stands_in_three_of_the_last_five_bad_batches(tmp_path: Path) -> None:
    quarantine, names = Quarantine(tmp_path), counts(dict.fromkeys(AGENTS.values(), True))

    def add(*places: int) -> set[str]:
        quarantine.add(Sampled(batch(places), 0, 1, {}), NotFinite("NaN"), 1, names)
        # Good updates between them change nothing.
        quarantine.clear()
        return quarantine.find_repeated()

    assert add(0, 1) == set()
    assert add(1, 2) == set()
    assert add(0) == set()
    assert add(1) == {"agent-1000"}
    assert add(0, 2) == {"agent-0", "agent-1000"}
    # Of the last five: 12, 0, 1, 02, 2.
    assert add(2) == {"agent-1001"}
    kept = json.loads((tmp_path / "2.json").read_text())
    assert kept["rows_of"] == {"agent-1000": 1, "agent-1001": 1}


def test_the_end_names_the_senders_and_the_first_batch(tmp_path: Path) -> None:
    quarantine, names = Quarantine(tmp_path), counts(dict.fromkeys(AGENTS.values(), True))
    for number in range(BAD_LIMIT):
        quarantine.add(Sampled(batch([0, 1, 1]), 0, 1, {}), NotFinite("NaN"), number, names)
    assert quarantine.explain().startswith(
        "10 updates in a row had a loss or gradient that is not finite; rows of agent-1000 (20), "
        f"agent-0 (10); the first batch: {tmp_path / '1.json'}; lower"
    )
    assert words({f"agent-{number}": 9 - number for number in range(7)}).endswith(
        "agent-4 (5) and 2 more"
    )


# -- with a learner -------------------------------------------------------------------------------


class Fragile(DQNLearner):
    """Reports that it has skipped batches, as long as ``broken`` is true."""

    broken = False

    def learn(self, batch: Any) -> Any:
        assert "sender" not in batch
        return {**super().learn(batch), **({"skipped": 1.0} if self.broken else {})}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    words = ("session_config.launcher.host=127.0.0.1", "session_config.security.insecure=true")
    made = Stage(experiment(*words), tmp_path / "run")
    made.listen("loggerplex")
    yield made
    made.close()


def start(stage: Stage) -> Any:
    stage.start("ps", "replay-0", "agent-0")
    service = start_learner(stage)
    replay = service._learners.owner.replay
    stage.until(lambda: any(each["senders"] for each in replay.counts().values()))
    return service


def start_learner(stage: Stage) -> Any:
    def build(context: Any) -> LearnerService:
        return LearnerService(
            context, {"default": Fragile(**sections_of(context.config))}, stage.folder
        )

    stage.start("learner", build=build)
    return stage.service("learner")


def events(stage: Stage, kind: str) -> list[str]:
    records = stage.records("loggerplex")
    return [str(record["detail"]) for record in records if record.get("event") == kind]


@pytest.mark.slow
def test_own_agents_are_named_and_not_fenced(stage: Stage) -> None:
    service = start(stage)
    worker = service._learners.owner
    stage.until(lambda: worker.replay.counts() and worker.learner.sampled)
    for _ in range(4):
        worker._set_aside(NotFinite("a loss or gradient is not finite"))
    (line,) = stage.until(lambda: events(stage, "bad_update"))
    assert "is not finite; rows of agent-0 (16); its batch: " in line
    assert (events(stage, "fenced"), worker.replay.fenced) == ([], set())


def test_a_guest_is_fenced_by_its_third_bad_batch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = ExperienceReceiver._insert

    def insert_as_guest(self: Any, chunk: Any, sender: Any, *, readable: bool) -> None:
        insert(self, chunk, sender._replace(joined=True), readable=readable)

    monkeypatch.setattr(ExperienceReceiver, "_insert", insert_as_guest)
    worker = start(stage)._learners.owner
    stage.until(lambda: worker.replay.guests() and worker.learner.sampled)
    for times in range(1, 5):
        worker._set_aside(NotFinite("NaN"))
        assert worker.replay.fenced == ({"agent-0"} if times >= 3 else set())
    said = ["guest agent-0 fenced: in 3 of the last 5 bad batches"]
    assert stage.until(lambda: events(stage, "fenced")) == said
    stage.until(lambda: next(iter(worker.replay.counts().values()))["sampleable"] == 0)


@pytest.mark.slow
def test_the_next_learner_removes_what_came_after_the_checkpoint(stage: Stage) -> None:
    service = start(stage)
    stage.until(lambda: service._learners.learner.iteration >= 5)
    coordinator = service.coordinator
    assert coordinator.save() is not None
    ends = dict(service._learners.owner._ends)
    assert ends["replay-0"][1] > 0
    stage.until(lambda: service._learners.learner.iteration >= 15)
    service._learners.learner.broken = True
    with pytest.raises(BadUpdates, match="rows of agent-0"):
        stage.until(lambda: False)
    assert coordinator.record.rolls_back
    iteration = service._learners.learner.iteration
    assert coordinator.record.bad_at == iteration
    stage.frames.pop("learner").close()
    again = start_learner(stage)
    assert again._learners.learner.iteration < iteration
    stage.until(lambda: not again._learners.rolls_back)
    (line,) = stage.until(lambda: events(stage, "rolled_back"))
    removed = int(line.split()[0].replace(",", ""))
    assert removed > 0
    stage.until(lambda: again._learners.learner.iteration > 6)
    assert not again.coordinator.record.rolls_back
    assert again.coordinator.record.experience()["rolled_back"] == removed


def test_a_second_time_without_progress_fails_the_run(stage: Stage) -> None:
    coordinator = start(stage).coordinator
    coordinator.record.bad_at = coordinator.learners.learner.iteration + 1000
    coordinator.learners.learner.broken = True
    verdict = stage.until(lambda: coordinator.verdict)
    assert verdict.status == "failed"
    assert "10 updates in a row" in verdict.reason
    assert "rows of agent-0" in verdict.reason
    assert f"the first batch: {stage.folder.quarantine / '1.json'}" in verdict.reason


def test_a_new_checkpoint_is_progress(stage: Stage) -> None:
    coordinator = start(stage).coordinator
    coordinator.record.bad_at = 10**6
    stage.until(lambda: coordinator.learners.learner.iteration >= 2)
    coordinator.save()
    assert coordinator.record.bad_at is None
