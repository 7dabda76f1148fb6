"""What is learned from is what the agent had: stacks, rewards, goals, normalised observations.

An agent plays episodes at random through its own wrappers, every kind of replay samples them, and
slow twins compute each sample from the episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from session.config import Config
from surreal_like.data.batch import make_batch
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay
from surreal_like.replay.replay import Replay
from surreal_like.replay.table import Table
from surreal_like.replay.tuple_replay import ExpTuple, TupleReplay
from tests.add_ons import load_replays, needs
from tests.examples import examples
from tests.surreal_like.episodes import STREAMS, Checker, Episodes, Learned, Played
from tests.surreal_like.replay.configs import configs

BURN_IN = 2


class Tuples(TupleReplay):
    """Keeps every transition that it is given; each is sampled once, the oldest first."""

    def __init__(self, **made: Config) -> None:
        super().__init__(**made)
        self.kept: list[ExpTuple] = []

    def insert(self, experience: ExpTuple) -> None:
        self.kept.append(experience)

    def sample(self, batch_size: int) -> list[ExpTuple]:
        sample, self.kept = self.kept[:batch_size], self.kept[batch_size:]
        return sample

    def can_sample(self, batch_size: int) -> bool:
        return len(self.kept) >= batch_size


@dataclass(frozen=True)
class Kind:
    """One kind of replay: its class, what is set, and what a sample is."""

    replay: type[Replay]
    options: Mapping[str, Any] = field(default_factory=dict)
    samples: str = "transitions"
    goals: bool = False
    iterates: bool = False
    batch_size: int = 30

    def make(self, learned: Learned, frames: int, steps: int) -> Any:
        options = {"capacity": 120, "batch_size": self.batch_size, "min_size": 1, **self.options}
        if self.iterates:
            options["iteration"] = {
                "unroll_length": 2 * steps,
                "whole_replay_buffer_training": True,
                "clear_replay_buffer": frames % 2 == 0,
            }
        path = f"{self.replay.__module__}:{self.replay.__name__}"
        session = {"agent": {"num": 1}, "sender": {"flush_iteration": steps}}
        made = configs(algo=learned.algo, session=session, type=path, **options)
        env = made["env_config"]
        env.update({"frame_stack": frames, "num_envs": STREAMS})
        env.update({"env_name": f"{Episodes.__module__}:Episodes", "env_args": {}})
        env["obs_spec"] = Episodes.obs_spec
        return self.replay(**made)


SEQUENCE = {"sequence": {"length": 3, "burn_in": BURN_IN, "period": 2}}
HINDSIGHT = {"hindsight": {"proportion": 0.7}}
KINDS = {
    "uniform": Kind(UniformReplay),
    "by age": Kind(UniformReplay, {"age": {"max_versions": 0, "half_life_versions": 2.0}}),
    "prioritized": Kind(PrioritizedReplay, {"priority": {"initial": "acting"}}),
    "hindsight": Kind(UniformReplay, HINDSIGHT, goals=True),
    "hindsight by priority": Kind(PrioritizedReplay, HINDSIGHT, goals=True),
    "unrolls": Kind(FIFOReplay, samples="unrolls", batch_size=6),
    "iterations": Kind(UniformReplay, iterates=True),
    "tuples": Kind(Tuples),
}
for each in load_replays():
    if each.gives() == "sequences":
        KINDS["sequences"] = Kind(each, SEQUENCE, "sequences", batch_size=6)
        KINDS["iterations of sequences"] = replace(KINDS["sequences"], iterates=True)


def batches(replay: Any, batch_size: int) -> Iterator[Any]:
    """All batches that an unfilled queue or a training gives, or one of any other replay."""
    while replay.can_sample(batch_size):
        columns = replay.sample_columns(batch_size)
        (batch,) = replay.collate(replay.learner_config)(columns, 1)
        yield make_batch(batch)
        if not replay.consumes and replay.last is None:
            break


def compared(replay: Any, kind: Kind, check: Checker, random: Random) -> int:
    """Compares what can be sampled now; returns the number of samples."""
    seen = 0
    for batch in batches(replay, kind.batch_size):
        seen += batch["rewards"].shape[-1]
        if kind.samples == "sequences":
            check.sequences(batch, BURN_IN)
        else:
            getattr(check, kind.samples)(batch)
        if replay.takes_priorities:
            indices = batch["indices"]
            replay.update_priorities(indices, [random.random() for _ in indices])
    if kind is KINDS["prioritized"] and len(replay.selector):
        check.first_errors(replay)
    return seen


def arriving(chunks: list[Chunk], replay: Any, random: Random) -> Iterator[None]:
    """Inserts what comes, as long as the replay takes more; one in ten chunks is lost."""
    while chunks:
        if not replay.can_insert():
            yield
            continue
        chunk = chunks.pop(0)
        if random.random() < 0.9 and replay.refusal(chunk) is None:
            replay.insert_chunk(chunk)
    yield


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs("hindsight")) if kind.goals else name
        for name, kind in KINDS.items()
    ],
)
@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 2**32),
    frames=st.integers(1, 5),
    steps=st.integers(1, 7),
    learned=st.builds(
        Learned,
        n_step=st.integers(1, 4),
        clip=st.sampled_from([0.0, 2.0]),
        scale=st.sampled_from([1.0, 0.5]),
    ),
)
# The environments are reset when all episodes have just ended.
@example(seed=907, frames=1, steps=4, learned=Learned())
# They are reset when all episodes have just begun.
@example(seed=275, frames=1, steps=5, learned=Learned())
def test_samples_equal_twins_of_the_episodes(
    name: str, seed: int, frames: int, steps: int, learned: Learned
) -> None:
    """T2."""
    kind, random = KINDS[name], Random(seed)
    frames = 1 if kind.goals else frames
    if kind.samples == "unrolls":
        learned = replace(learned, n_step=1)
    replay = kind.make(learned, frames, steps)
    played = Played(kind.replay, frames, random, steps, goals=kind.goals)
    check, taken, seen = Checker(played, learned), 0, 0
    for _ in range(6):
        played.play(2 * steps)
        new, taken = played.chunks[taken:], len(played.chunks)
        for _ in arriving(new, replay, random):
            seen += compared(replay, kind, check, random)
        if isinstance(replay, Table):
            restored = kind.make(learned, frames, steps)
            restored.restore(replay.state())
            assert restored.statistics()["sampleable"] == replay.statistics()["sampleable"]
            replay = restored
    assert seen or steps < 4
