"""Agents that wait for the version after each training iteration, and the learner that owes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session.config.sections import sections_of
from session.errors import ConfigError
from session.wire import Message
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.algorithm.ppo import PPOLearner
from surreal_like.coordinator.service import LearnerService
from surreal_like.experiment.preflight import rehearse
from tests.api.stage import Stage, experiment

ITERATION = (
    "{unroll_length: 8, whole_replay_buffer_training: true, clear_replay_buffer: true,"
    " initial_collect_steps: 32}"
)
WORDS = (
    "learner_config.algo.synchronous=true",
    "learner_config.algo.n_step=2",
    f"learner_config.replay.iteration={ITERATION}",
    "learner_config.replay.batch_size=5",
    # It must not postpone what agents wait for.
    "learner_config.parameter_publish.min_publish_interval=1000000.0",
    "session_config.agent.num=2",
)
# Rows of one training: two agents of two environments.
PART = 8 * 2 * 2


class Watched(DQNLearner):
    """Notes each batch; fails at the last one of each second training."""

    fails: str = ""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.seen: list[tuple[int, int, int, bool | None]] = []

    def learn(self, batch: Any) -> Any:
        assert self.sampled is not None
        versions, last = batch["version"], self.sampled.last
        self.seen.append((self.version, int(versions.min()), int(versions.max()), last))
        metrics = super().learn(batch)
        failing = last and not self.version % 2
        if failing and self.fails == "raises":
            raise IndexError("index 99")
        return {**metrics, "skipped": 1.0} if failing and self.fails else metrics


@pytest.mark.parametrize("fails", ["", "raises", "is not finite"])
def test_each_training_ends_in_one_version_before_rows_are_collected_again(
    tmp_path: Path, fails: str
) -> None:
    """Each training has the rows of one version, and ends in the next one, failed or not."""
    stage = Stage(experiment(*WORDS), tmp_path / "run")
    kind = type("Watched", (Watched,), {"fails": fails})
    try:
        stage.start("ps", "replay-0", "agent-0", "agent-1")
        stage.start(
            "learner",
            build=lambda c: LearnerService(
                c, {"default": kind(**sections_of(c.config))}, stage.folder
            ),
        )
        learner, table = (
            stage.service("learner")._learners.learner,
            stage.service("replay-0")._replay,
        )
        stage.until(lambda: learner.version > 4)
        # Agents and learner wait: further rounds add no rows and no versions.
        stage.rounds(0.1)
        seen, inserted = learner.seen, table.storage.next_number
        trained = learner.version - 1
    finally:
        stage.close()
    assert 32 + PART * trained <= inserted <= 32 + PART * (trained + 1)
    for version in range(1, 5):
        batches = [batch for batch in seen if batch[0] == version]
        assert [last for *_, last in batches] == [False] * (len(batches) - 1) + [True]
        # Of the version before are the rows that waited for their successors.
        assert {newest for _, _, newest, _ in batches} <= {version - 1, version}
        assert max(newest for _, _, newest, _ in batches) == version
        assert min(oldest for _, oldest, _, _ in batches) >= version - 1


class Raising(PPOLearner):
    """Cannot learn from its second batch."""

    calls = 0

    def learn(self, batch: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            raise IndexError("index 99")
        return super().learn(batch)


def test_no_agent_waits_for_an_unroll_that_could_not_be_learned_from(tmp_path: Path) -> None:
    words = ("learner_config.algo.synchronous=true", "learner_config.replay.batch_size=2")
    stage = Stage(experiment(*words, algorithm="ppo"), tmp_path / "run")
    try:
        stage.start("ps", "replay-0", "agent-0")
        stage.start(
            "learner",
            build=lambda c: LearnerService(
                c, {"default": Raising(**sections_of(c.config))}, stage.folder
            ),
        )
        learner = stage.service("learner")._learners.learner
        stage.until(lambda: learner.calls >= 4)
        assert (learner.iteration, learner.version) in ((2, 4), (3, 5))
    finally:
        stage.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learner_config.replay.iteration.unroll_length=0"], "set .*unroll_length, or synchron"),
        (
            ["learner_config.replay.iteration.initial_collect_steps=6"],
            r"collect_steps is 6, .*2 agents x 2 .*to a multiple of 4$",
        ),
        (["learner_config.algo.n_step=8"], "needs 8 rows after its first: .*set it to 9 or more"),
        (
            ["learner_config.algo.n_step=6", "env_config.frame_stack=3"],
            "needs 8 rows after its first",
        ),
    ],
)
def test_what_would_wait_for_ever_is_refused(words: list[str], said: str) -> None:
    config = experiment(*WORDS)
    rehearse(config, DQN, starts_here=True)
    with pytest.raises(ConfigError, match=said):
        rehearse(experiment(*WORDS, *words), DQN, starts_here=True)


class Patient(DQNAgent):
    """Waits although its config does not say so."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.synchronous = True


def test_the_learner_knows_from_the_config_that_agents_wait() -> None:
    config = experiment(*WORDS, "learner_config.algo.synchronous=false")
    with pytest.raises(ConfigError, match=r"algo.synchronous is false: .*set it to true"):
        rehearse(config, type("PatientDQN", (DQN,), {"agent": Patient}), starts_here=True)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("dqn", WORDS),
        ("ppo", ("learner_config.algo.synchronous=true", "learner_config.replay.batch_size=2")),
    ],
)
def test_no_agent_waits_for_a_batch_that_was_lost_with_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, words: tuple[str, ...]
) -> None:
    stage = Stage(experiment(*words, algorithm=algorithm), tmp_path / "run")
    try:
        stage.start(
            "ps", "replay-0", *(["agent-0", "agent-1"] if algorithm == "dqn" else ["agent-0"])
        )
        stage.start("learner")
        learner = stage.service("learner")._learners.learner
        [socket] = learner.link.replay.sockets()
        read: Callable[[], Message | None] = socket.receive
        lost: list[Message] = []

        def receive() -> Message | None:
            """Loses the next last batch."""
            reply = read()
            if reply is None or lost or reply.fields.get("last", True) is not True:
                return reply
            if reply.kind != "batch":
                return reply
            lost.append(reply)
            # In one thread there are no connections that could be lost.
            monkeypatch.setattr(
                socket, "connection_events", lambda: [events.pop()] if events else []
            )
            return None

        events = [True, False]
        stage.until(lambda: learner.version > 2)
        monkeypatch.setattr(socket, "receive", receive)
        stage.until(lambda: lost)
        version = learner.version
        stage.until(lambda: learner.version > version + 2)
    finally:
        stage.close()


def test_no_agent_waits_for_a_batch_of_before_an_exploit(tmp_path: Path) -> None:
    """Its rows of before and after the exploit are left out; the latter's agent waits."""
    words = ("learner_config.algo.synchronous=true", "learner_config.replay.batch_size=4")
    stage = Stage(
        experiment(*words, "session_config.agent.num=2", algorithm="ppo"), tmp_path / "run"
    )
    try:
        stage.start("ps", "replay-0", "agent-0", "agent-1", "learner")
        learner, agent = stage.service("learner")._learners.learner, stage.service("agent-0")
        stage.until(lambda: learner.version > 2)
        slow = stage.frames.pop("agent-1")
        stage.until(lambda: agent._sending.synchronous.waits())
        stage.rounds(0.1)
        learner.link.replay.since = learner.version + 1
        learner.publish_parameter(learner.iteration, at_once=True)
        sent = agent._sending.window.next_sequence
        stage.until(lambda: agent._sending.window.next_sequence > sent)
        stage.frames["agent-1"] = slow
        iteration = learner.iteration
        stage.until(lambda: learner.iteration > iteration + 3)
        assert learner.link.replay.rows_left_out == 4 * 4
    finally:
        stage.close()
