"""What an agent acts on and what is learned from are the same stacks, number for number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.config import Config
from surreal_like.env.base import Env, Step
from surreal_like.env.frame_stack import FrameStack
from surreal_like.env.vector import SyncVector
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.wrapper import ExpSenderWrapper
from surreal_like.experiment.machine import replay_need
from surreal_like.replay.fifo_replay import FIFOReplay
from surreal_like.replay.prioritized_replay import PrioritizedReplay
from surreal_like.replay.selector import Sample
from surreal_like.replay.tuple_replay import ExpTuple, TupleReplay
from surreal_like.replay.uniform_replay import UniformReplay
from tests.examples import examples
from tests.surreal_like.agent.rig import Rig, make_rig
from tests.surreal_like.replay.configs import configs

FIFO = "surreal_like.replay.fifo_replay:FIFOReplay"
UNIFORM = "surreal_like.replay.uniform_replay:UniformReplay"
STREAMS = 3


class Numbered(Env):
    """Every frame has a number of its own; episodes end at random, in both ways."""

    obs_spec = {  # noqa: RUF012
        "number": {"type": "int64", "dim": []},
        "image": {"type": "uint8", "dim": [2, 3]},
    }
    action_spec = {"type": "discrete", "dim": [2]}  # noqa: RUF012

    def __init__(self, numbers: Iterator[int], random: Random) -> None:
        self._numbers, self._random = numbers, random

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self._look(), {}

    def step(self, action: int) -> Step:
        end = self._random.choice("MMMMMTU")
        return self._look(), 1.0, end == "T", end == "U", {}

    def _look(self) -> Any:
        number = next(self._numbers)
        return {"number": np.array(number), "image": np.full((2, 3), number % 251, np.uint8)}


class Played:
    """An agent's loop around a sender whose chunks are kept; `acted` has the stacks it saw.

    The newest frame of a stack says which stack it is.
    """

    def __init__(self, rig: Rig, replay: str, frames: int, random: Random, steps: int) -> None:
        numbers = itertools.count()
        envs = [Numbered(numbers, random) for _ in range(STREAMS)]
        vector = SyncVector(envs, obs_spec=Numbered.obs_spec, action_spec=Numbered.action_spec)
        learner = Config({"replay": {"type": replay}})
        session = Config({"sender": {"flush_iteration": steps}})
        rig.config.env_config.frame_stack = frames
        sender = ExpSenderWrapper(vector, learner, session, context=rig.context("agent-0"))
        sender.sender.send = self._send  # type: ignore[method-assign]
        self.env = FrameStack(sender, frames)
        self.chunks: list[Chunk] = []
        self.acted: dict[int, Any] = {}
        self._random = random
        self._see(self.env.reset()[0])

    def play(self, steps: int) -> None:
        for _ in range(steps):
            if self._random.random() < 0.05:
                self._see(self.env.reset()[0])
            self._see(self.env.step(np.zeros(STREAMS, np.int64))[0])

    def check(self, numbers: npt.NDArray[Any], images: npt.NDArray[Any]) -> None:
        """Stacks [..., k] of frame numbers, and [..., k, 2, 3] of images."""
        frames = numbers.shape[-1]
        for number, image in zip(
            numbers.reshape(-1, frames), images.reshape(-1, frames, 2, 3), strict=True
        ):
            seen = self.acted[int(number[-1])]
            np.testing.assert_array_equal(number, seen["number"])
            np.testing.assert_array_equal(image, seen["image"])

    def _see(self, obs: Any) -> None:
        for stream in range(STREAMS):
            seen = {name: leaf[stream].copy() for name, leaf in obs.items()}
            self.acted[int(seen["number"][-1])] = seen

    def _send(self, columns: Any, **header: Any) -> None:
        for name in ("finished", "first_seconds"):
            del header[name]
        streams = header.pop("streams")
        number = len(self.chunks) + 1
        self.chunks.append(
            Chunk(columns, number, streams, sender="agent-0", incarnation=1, **header)
        )


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with make_rig() as made:
        yield made


def replay_configs(frames: int, n_step: int, steps: int, **replay: Any) -> dict[str, Config]:
    made = configs(
        algo={"n_step": n_step, "gamma": 0.9},
        session={"sender": {"flush_iteration": steps}},
        **{"batch_size": STREAMS, "min_size": 1} | replay,
    )
    made["env_config"].update({"frame_stack": frames, "num_envs": STREAMS})
    return made


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (UniformReplay, {}),
        (UniformReplay, {"age": {"max_versions": 0, "half_life_versions": 2.0}}),
        (PrioritizedReplay, {}),
    ],
    ids=["uniform", "by age", "prioritized"],
)
@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 2**32),
    frames=st.integers(1, 6),
    n_step=st.integers(1, 3),
    steps=st.integers(1, 7),
)
def test_stacks_of_transitions_are_those_that_were_acted_on(
    rig: Rig,
    kind: type[UniformReplay],
    options: dict[str, Any],
    seed: int,
    frames: int,
    n_step: int,
    steps: int,
) -> None:
    random = Random(seed)
    played = Played(rig, UNIFORM, frames, random, steps)
    made = replay_configs(frames, n_step, steps, capacity=90, **options)
    replay = kind(**made)
    seen = 0
    for _ in range(12):
        played.play(2 * steps)
        for chunk in played.chunks[seen:]:
            if random.random() < 0.9:  # else it never arrives
                replay.insert(chunk)
        seen = len(played.chunks)
        if not replay.start_sample_condition():
            continue
        numbers = np.unique(replay.sample(200).numbers)
        batch = replay.aggregate_batch(Sample(numbers, {}))
        assert batch["obs/image"].shape[1:] == ((frames, 2, 3) if frames > 1 else (2, 3))
        for obs in ("obs", "obs_next"):
            shape = (len(numbers), frames)
            played.check(
                batch[f"{obs}/number"].reshape(shape), batch[f"{obs}/image"].reshape(*shape, 2, 3)
            )
    sampleable, drawable = replay.statistics()["sampleable"], replay.selector.drawable
    restored = kind(**made)
    restored.restore(replay.state())
    assert sampleable == drawable == restored.statistics()["sampleable"]


class Kept(TupleReplay):
    """Keeps every transition that it is given."""

    def __init__(self, **made: Config) -> None:
        super().__init__(**made)
        self.kept: list[ExpTuple] = []

    def insert(self, experience: ExpTuple) -> None:
        self.kept.append(experience)


@settings(max_examples=examples(15))
@given(
    seed=st.integers(0, 2**32),
    frames=st.integers(2, 5),
    n_step=st.integers(1, 3),
    steps=st.integers(1, 7),
)
def test_stacks_of_tuples_are_those_that_were_acted_on(
    rig: Rig, seed: int, frames: int, n_step: int, steps: int
) -> None:
    played = Played(rig, UNIFORM, frames, Random(seed), steps)
    played.play(12 * steps)
    made = replay_configs(frames, n_step, steps, capacity=10_000)
    tuples, rows = Kept(**made), UniformReplay(**made)
    for chunk in played.chunks:
        tuples.insert_chunk(chunk)
        rows.insert(chunk)
    # Each transition once, and none is missing.
    assert len(tuples.kept) == rows.statistics()["sampleable"]
    assert len({int(each.obs[0]["number"][-1]) for each in tuples.kept}) == len(tuples.kept)
    for each in tuples.kept:
        for obs in each.obs:
            played.check(obs["number"], obs["image"])


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32), frames=st.integers(2, 6), steps=st.integers(1, 7))
def test_stacks_of_unrolls_are_those_that_were_acted_on(
    rig: Rig, seed: int, frames: int, steps: int
) -> None:
    played = Played(rig, FIFO, frames, Random(seed), steps)
    replay = FIFOReplay(**replay_configs(frames, 1, steps, type=FIFO))
    played.play(14 * steps)
    whole = [chunk for chunk in played.chunks if replay.refusal(chunk) is None]
    assert whole
    for chunk in whole:
        assert {lead.shape[:2] for lead in chunk.lead_in.values()} == {(frames - 1, STREAMS)}
        assert chunk.size == steps * STREAMS
        replay.insert(chunk)
    restored = FIFOReplay(**replay_configs(frames, 1, steps, type=FIFO))
    restored.restore(replay.state())
    collate = FIFOReplay.collate(replay.learner_config)
    for _, each in itertools.product(whole, (replay, restored)):
        (batch,) = collate(each.sample_columns(STREAMS), 1)
        assert batch["obs/image"].shape == (steps + 1, STREAMS, frames, 2, 3)
        played.check(batch["obs/number"], batch["obs/image"])


def image_chunk(number: int, frames: int) -> Chunk:
    """64 steps of two streams of Atari frames, in stacks or not."""
    stack = (frames,) if frames > 1 else ()
    columns: dict[str, npt.NDArray[Any]] = {
        "step_type": np.ones((64, 2), np.uint8),
        "reward": np.zeros((64, 2), np.float32),
        "discount": np.ones((64, 2), np.float32),
        "version": np.ones((64, 2), np.int64),
        "obs": np.zeros((64, 2, *stack, 84, 84), np.uint8),
        "action": np.zeros((64, 2), np.int64),
    }
    return Chunk(columns, number, [0, 1], sender="agent-0", incarnation=1)


def test_a_transition_of_atari_takes_a_seventh_of_two_stacks() -> None:
    made = replay_configs(4, 1, 64, capacity=2048)
    replay = UniformReplay(**made)
    for number in range(1, 17):
        replay.insert(image_chunk(number, 1))
    sampleable = replay.statistics()["sampleable"]
    # Two streams, each with one row that waits and three whose stacks are not whole.
    assert sampleable == 2048 - 2 * 4
    stacks = 2 * 4 * 84 * 84
    assert replay.statistics()["size_bytes"] / sampleable <= stacks / 7.5
    batch = replay.aggregate_batch(replay.sample(8))
    assert batch["obs"].nbytes + batch["obs_next"].nbytes == 8 * stacks
    chunk = image_chunk(1, 1)
    assert chunk.size_bytes / chunk.size <= stacks / 7.5  # on the wire too


def test_what_a_plan_says_of_memory_is_that_of_single_frames() -> None:
    made = Config(replay_configs(4, 1, 64, capacity=1000))
    made.env_config.obs_spec = {"type": "uint8", "dim": [4, 84, 84]}
    made.env_config.action_spec = {"type": "discrete", "dim": [6]}
    assert replay_need(made).parts["observation"] == 84 * 84
