"""Rows of a session: the same chunks as those of an agent around the same environment."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.config.defaults import BASE_SESSION_CONFIG
from surreal_like.addons.gateway.messages import Protocol, Request
from surreal_like.addons.gateway.slots import Advice, Slot
from surreal_like.addons.scripts.wrapper import ExpSenderWrapper
from surreal_like.env.environment import Step
from surreal_like.env.masks import make_guard
from surreal_like.env.vector import SyncVector
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ActorState
from surreal_like.experience.row_sender import RowSender
from surreal_like.experience.row_writer import RowWriter
from tests.surreal_like.agent.rig import Count, make_rig

PROTOCOL = Protocol(Count.obs_spec, Count.action_spec)
MANY = Protocol(Count.obs_spec, Count.action_spec, num_envs=2)
FIRST, MID, LAST = 0, 1, 2


def settings(length: int = 4, **changes: Any) -> Config:
    given = Config({"sender": {"flush_iteration": length, **changes}})
    return given.extend(BASE_SESSION_CONFIG).sender  # type: ignore[no-any-return]


@dataclass
class Sent:
    """All chunks that were sent."""

    chunks: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, chunk: Chunk) -> None:
        # Columns are not changed afterwards, lists may be.
        names = ("columns", "finished", "tail", "overlap", "lead_in")
        about = {name: getattr(chunk, name) for name in names}
        self.chunks.append({**about, "streams": list(chunk.streams)})

    def column(self, name: str, overlap: int = 0) -> list[Any]:
        """One column of all chunks, without repeated rows."""
        rows: list[Any] = []
        for chunk in self.chunks:
            values = chunk["columns"][name].tolist()
            rows += values[: len(values) - chunk["overlap"]]
        return rows

    @property
    def finished(self) -> list[dict[str, Any]]:
        return [each for chunk in self.chunks for each in chunk["finished"]]


def slot(
    sent: Sent,
    length: int = 4,
    *,
    overlap: int = 0,
    stack: int = 1,
    num_envs: int = 1,
    metrics: Mapping[str, float] = MappingProxyType({}),
) -> Slot:
    writer = RowWriter(
        num_envs,
        obs_spec=Count.obs_spec,
        action_spec=Count.action_spec,
        settings=settings(length),
        overlap=overlap,
        send=sent,
        ids=itertools.count(10),
    )
    writer.keep_frames(stack - 1)
    return Slot(writer, num_envs, ActorState(metrics=metrics), lambda: 1.0)


class Quiet(Count):
    """The same without numbers of its own: most rows are written by one call."""

    def step(self, action: int) -> Step:
        return *super().step(action)[:4], {}


class Player:
    """Plays an environment through a slot, as a client and an agent do."""

    def __init__(self, made: Slot, env: Count) -> None:
        self.slot, self.env = made, env
        self.seq = 0
        self.steps = 0
        self.action = 0

    def _parse(self, kind: str, **fields: Any) -> Any:
        self.seq += 1
        return PROTOCOL.parse({"kind": kind, "seq": self.seq, **fields})

    def _advised(self) -> None:
        self.steps += 1
        self.action = self.steps % 3
        extras = {"extras/values": np.full((1, 3), self.steps, np.float32)}
        self.slot.advise(Advice(np.array([self.action]), extras, self.steps // 2 + 1))

    def reset(self) -> None:
        obs, _ = self.env.reset()
        self.slot.begin(self._parse("reset", observation=obs))
        self._advised()

    def step(self) -> Any:
        """Makes a step; returns the summary of an episode that it ends."""
        obs, reward, terminated, truncated, info = self.env.step(self.action)
        fields = {"reward": reward, "observation": obs, "metrics": info.get("metrics")}
        if terminated or truncated:
            request = self._parse("end", truncated=truncated and not terminated, **fields)
            return self.slot.end(request)
        self.slot.step(self._parse("step", **fields))
        self._advised()
        return None

    def episodes(self, count: int) -> None:
        for _ in range(count):
            self.reset()
            while self.step() is None:
                pass


class Wrapped:
    """Plays the same with an agent's wrapper; it acts at last rows, too, which is ignored."""

    def __init__(
        self, env: Count, length: int, overlap: int, stack: int, metrics: Mapping[str, float]
    ) -> None:
        self.sent = Sent()
        self.env = env
        self.steps = 0
        replay = "fifo_replay:FIFOReplay" if overlap else "uniform_replay:UniformReplay"
        with (
            make_rig(env={"frame_stack": stack}, sender={"flush_iteration": length}) as rig,
            pytest.MonkeyPatch.context() as patch,
        ):
            rig.config.learner_config.replay.type = f"surreal_like.replay.{replay}"
            context = rig.context("agent-0")
            patch.setattr(RowSender, "_send", lambda wrapper, *a, **k: self.sent(*a, **k))
            vector = SyncVector([env], obs_spec=Count.obs_spec, action_spec=Count.action_spec)
            wrapper = ExpSenderWrapper(
                vector, rig.config.learner_config, rig.config.session_config, context=context
            )
            wrapper.sender.acting.metrics = metrics
            wrapper.reset()
            self.wrapper, self.acting = wrapper, wrapper.sender.acting
            self._play()
            wrapper.finish()

    def _play(self) -> None:
        ended, episodes = False, 0
        while episodes < 5:
            if ended:
                action = 0
            else:
                self.steps += 1
                action = self.steps % 3
            self.acting.version = self.steps // 2 + 1
            extras = {"values": np.full((1, 3), self.steps, np.float32)}
            _, _, terminated, truncated, _ = self.wrapper.step((np.array([action]), extras))
            ended = bool(terminated[0] or truncated[0])
            episodes += ended


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("length", [1, 2, 4, 5, 30])
@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize(("steps", "ends"), [(3, "TU"), (1, "TU"), (7, "UT")])
@pytest.mark.parametrize(("env", "metrics"), [(Count, {}), (Count, {"epsilon": 0.5}), (Quiet, {})])
def test_chunks_are_those_of_an_agent(
    overlap: int,
    length: int,
    stack: int,
    steps: int,
    ends: str,
    metrics: dict[str, float],
    env: type[Count],
) -> None:
    theirs = Wrapped(env(steps, ends), length, overlap, stack, metrics).sent
    ours = Sent()
    made = slot(ours, length, overlap=overlap, stack=stack, metrics=metrics)
    player = Player(made, env(steps, ends))
    player.episodes(5)
    player.slot.finish()
    assert ours.finished == theirs.finished
    assert len(ours.chunks) == len(theirs.chunks)
    for mine, other in zip(ours.chunks, theirs.chunks, strict=True):
        assert mine["streams"] == [10]
        assert mine["overlap"] == other["overlap"]
        assert mine["columns"].keys() == other["columns"].keys()
        # The agent is not asked at last rows.
        asked = mine["columns"]["step_type"] != LAST
        for name, column in mine["columns"].items():
            theirs_column = other["columns"][name]
            assert column.dtype == theirs_column.dtype
            if name in ("action", "version") or name.startswith("extras/"):
                # The repeated row of a full unroll has no action yet.
                known = asked.copy()
                known[len(known) - mine["overlap"] :] = False
                column, theirs_column = column[known], theirs_column[known]
            assert column.tobytes() == theirs_column.tobytes(), name
        lead = {name: each.tobytes() for name, each in mine.get("lead_in", {}).items()}
        assert lead == {name: each.tobytes() for name, each in other.get("lead_in", {}).items()}


def test_a_row_is_written_when_the_next_request_comes() -> None:
    sent = Sent()
    player = Player(slot(sent, 1), Count(5))
    player.reset()
    assert sent.chunks == []
    player.step()
    assert sent.column("obs") == [[[0.0, 0.0]]]


def test_the_client_may_say_what_was_done() -> None:
    sent = Sent()
    player = Player(slot(sent, 1), Count(5))
    player.reset()
    player.slot.step(player._parse("step", reward=1.0, observation=[0, 1], action=2))
    assert player.action == 1
    assert sent.column("action") == [[2]]
    assert sent.column("extras/values") == [[[1.0, 1.0, 1.0]]]


def test_a_cut_is_a_truncation_that_is_no_episode() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(5, "T"))
    player.reset()
    player.step()
    player.step()
    assert player.slot.cut()
    player.episodes(1)
    player.slot.finish()
    assert sent.column("step_type") == [[each] for each in (0, 1, 2, 0, 1, 1, 1, 1, 2)]
    assert sent.column("discount") == [[1.0]] * 8 + [[0.0]]
    assert sent.column("action")[2] == [0]
    assert sent.column("extras/values")[2] == [[0.0, 0.0, 0.0]]
    # The reward of the last action before the cut is there.
    assert sent.column("reward")[:3] == [[0.0], [1.0], [2.0]]
    assert [(each["return"], each["length"]) for each in sent.finished] == [(15.0, 5)]


def test_a_cut_after_the_first_observation_records_nothing() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(2, "T"))
    for _ in range(3):
        player.reset()
        assert not player.slot.cut()
    assert not player.slot.cut()
    player.episodes(1)
    player.slot.finish()
    assert sent.column("obs") == [[[3.0, each]] for each in (0.0, 1.0, 2.0)]
    assert sent.column("step_type") == [[0], [1], [2]]


def test_a_cut_before_the_answer_keeps_the_outcome_of_the_last_action() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(5, "T"))
    player.reset()
    obs, reward, *_ = player.env.step(player.action)
    player.slot.step(player._parse("step", reward=reward, observation=obs))
    assert player.slot.cut()
    player.slot.finish()
    assert sent.column("step_type") == [[0], [2]]
    assert sent.column("reward") == [[0.0], [1.0]]


@pytest.mark.parametrize("life", [1, 2, 7])
@pytest.mark.parametrize("length", [1, 4, 20])
def test_unrolls_are_not_torn_by_sessions_that_die(length: int, life: int) -> None:
    sent = Sent()
    player = Player(slot(sent, length, overlap=1), Count(1000, "T"))
    for _ in range(30):
        player.reset()
        for _ in range(life):
            player.step()
        player.slot.cut()
    player.slot.finish()
    *whole, last = sent.chunks
    assert all(len(chunk["columns"]["reward"]) == length + 1 for chunk in whole)
    assert {stream for chunk in sent.chunks for stream in chunk["streams"]} == {10}
    # Each unroll begins with the row at which the one before has ended.
    for before, after in itertools.pairwise(sent.chunks):
        for name in ("obs", "reward", "step_type", "discount"):
            assert before["columns"][name][-1].tolist() == after["columns"][name][0].tolist()
    expected = ([FIRST] + [MID] * (life - 1) + [LAST]) * 30
    assert [each[0] for each in sent.column("step_type")] == expected
    assert sent.finished == []
    assert last["tail"]


def test_metrics_of_steps_belong_to_the_episode() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(2, "T"))
    player.reset()
    player.slot.step(
        player._parse("step", reward=1.0, observation=[0, 1], metrics={"a": 1, "b": 2})
    )
    player._advised()
    player.slot.end(player._parse("end", reward=1.0, metrics={"b": 3}))
    player.slot.finish()
    assert sent.finished == [{"return": 2.0, "length": 2, "metrics": {"a": 1.0, "b": 3.0}}]
    # An end without an observation repeats the newest one.
    assert sent.column("obs")[-1] == [[0.0, 1.0]]
    assert sent.column("discount")[-1] == [0.0]


def test_metrics_of_a_cut_episode_are_not_those_of_the_next() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(2, "T"))
    player.reset()
    player.slot.step(player._parse("step", reward=1.0, observation=[0, 1], metrics={"a": 1}))
    player.slot.cut()
    player.reset()
    player.slot.end(player._parse("end", reward=5.0))
    player.slot.finish()
    assert sent.finished == [{"return": 5.0, "length": 1, "metrics": {}}]


def test_a_long_episode_that_is_cut_leaves_no_return() -> None:
    sent = Sent()
    player = Player(slot(sent, 1000), Count(600, "T"))
    player.reset()
    for _ in range(550):
        player.step()
    player.slot.cut()
    player.reset()
    player.slot.end(player._parse("end", reward=5.0))
    player.slot.finish()
    assert [(each["return"], each["length"]) for each in sent.finished] == [(5.0, 1)]


def test_the_summary_for_the_client() -> None:
    player = Player(slot(Sent(), 100), Count(3, "T"))
    player.episodes(1)
    player.reset()
    assert player.step() is None
    assert player.step() is None
    assert player.step() == {"return": 6.0, "length": 3}


def test_without_a_writer_nothing_is_recorded() -> None:
    player = Player(Slot(None, 1, ActorState(), lambda: 0.0), Count(3, "T"))
    player.episodes(2)
    player.reset()
    player.step()
    assert not player.slot.cut()
    player.slot.finish()
    player.slot.flush(1e9)


def test_a_short_chunk_is_sent_after_a_while() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(5))
    player.reset()
    player.step()
    player.slot.flush(5.9)
    assert sent.chunks == []
    player.slot.flush(6.0)
    assert sent.column("obs") == [[[0.0, 0.0]]]
    player.step()
    player.slot.cut()
    player.slot.finish()
    assert sent.column("step_type") == [[0], [1], [2]]


def test_a_muted_slot_has_nothing_to_cut() -> None:
    sent = Sent()
    player = Player(slot(sent, 100), Count(9, "T"))
    player.reset()
    player.step()
    assert player.slot.mute()
    player._advised()
    request = player._parse("step", reward=1.0, observation=[0, 5])
    player.slot.step(request, has_room=False)
    assert player.slot.muted
    assert not player.slot.cut()
    player.slot.finish()
    assert sent.column("step_type") == [[0], [2]]


def test_the_age_of_a_chunk_counts_from_its_first_row() -> None:
    sent, clock = Sent(), [0.0]
    made = slot(sent, 2)
    made._now = lambda: clock[0]
    player = Player(made, Count(2, "T"))
    player.reset()
    player.step()
    clock[0] = 10.0
    # The second row fills the first chunk; the last row of the episode begins another.
    player.step()
    assert len(sent.chunks) == 1
    made.flush(14.9)
    assert len(sent.chunks) == 1
    made.flush(15.0)
    assert len(sent.chunks) == 2


def many(seq: int, kind: str, obs: Any, **fields: Any) -> Any:
    return MANY.parse({"kind": kind, "seq": seq, "observation": obs, **fields})


@pytest.mark.parametrize("steps", [1, 255, 256, 257, 600])
def test_the_return_of_a_long_episode(steps: int) -> None:
    made = slot(Sent(), 100)

    def parsed(kind: str, seq: int) -> Any:
        return PROTOCOL.parse({"kind": kind, "seq": seq, "reward": 0.5, "observation": [0, 1]})

    made.begin(parsed("reset", 1))
    for seq in range(2, steps + 1):
        made.advise(Advice(np.array([1]), {}, 1))
        made.step(parsed("step", seq))
    made.advise(Advice(np.array([1]), {}, 1))
    assert made.end(parsed("end", steps + 1)) == {"return": 0.5 * steps, "length": steps}


def test_streams_of_one_session_end_on_their_own() -> None:
    sent = Sent()
    made = slot(sent, 100, num_envs=2)
    no = [False, False]

    def advised() -> None:
        made.advise(Advice(np.array([1, 2]), {}, 1))

    made.begin(many(1, "reset", [[0, 0], [1, 0]]))
    advised()
    made.step(many(2, "step", [[0, 1], [1, 1]], reward=[1, 2], terminated=[1, 0], truncated=no))
    assert made.list_ended() == [{"stream": 0, "return": 1.0, "length": 1}]
    advised()
    made.step(many(3, "step", [[2, 0], [1, 2]], reward=[0, 2], terminated=no, truncated=[0, 1]))
    assert made.first.tolist() == [True, False]
    assert made.list_ended() == [{"stream": 1, "return": 4.0, "length": 2}]
    advised()
    made.step(many(4, "step", [[2, 1], [3, 0]], reward=[5, 0], terminated=[1, 0], truncated=no))
    assert made.list_ended() == [{"stream": 0, "return": 5.0, "length": 1}]
    advised()
    assert made.cut()
    assert sent.column("step_type") == [[0, 0], [2, 1], [0, 2], [2, 0]]
    assert sent.column("reward") == [[0, 0], [1, 2], [0, 2], [5, 0]]
    assert [(each["return"], each["length"]) for each in sent.finished] == [
        (1.0, 1),
        (4.0, 2),
        (5.0, 1),
    ]
    made.begin(many(5, "reset", [[0, 0], [1, 0]]))
    advised()
    made.step(many(6, "step", [[0, 1], [1, 1]], reward=[1, 1], terminated=[1, 1], truncated=no))
    made.cut()
    made.finish()
    # A row at which a stream has just begun cannot end it: both get new numbers.
    assert [chunk["streams"] for chunk in sent.chunks] == [[10, 11], [12, 13]]
    assert sent.chunks[1]["columns"]["step_type"].tolist() == [[0, 0], [2, 2]]


def test_a_client_cannot_correct_to_a_masked_action() -> None:
    specs: dict[str, Any] = {
        "obs_spec": {"x": Count.obs_spec, "action_mask": {"type": "int8", "dim": [2]}},
        "action_spec": {"type": "discrete", "dim": [2]},
    }
    protocol = Protocol(**specs)
    slot = Slot(None, 1, ActorState(), lambda: 0.0, make_guard(**specs))
    shape = Count.obs_spec["dim"]
    obs = {"x": np.zeros(shape).tolist(), "action_mask": [0, 1]}
    fields: dict[str, Any] = {"kind": "reset", "seq": 1, "observation": obs}
    begun = protocol.parse(fields)
    assert isinstance(begun, Request)
    slot.begin(begun)
    for action, legal in ((1, True), (0, False)):
        step = protocol.parse({**fields, "kind": "step", "reward": 0.0, "action": action})
        assert isinstance(step, Request)
        if legal:
            slot.check(step)
            continue
        with pytest.raises(DataError, match=r"^action: 0 in stream 0 is masked"):
            slot.check(step)
