"""What every replay has, and what a server may call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay, load_replay_class, to_columns
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs


class Kept(Replay):
    """The least that an author writes."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.chunks: list[Chunk] = []

    def insert(self, experience: Chunk) -> None:
        self.chunks.append(experience)

    def sample(self, batch_size: int) -> list[int]:
        return [0] * batch_size

    def aggregate_batch(self, sample: list[int]) -> dict[str, Any]:
        return {"obs": {"image": np.zeros(len(sample))}, "rewards": [0.0 for _ in sample]}


def test_an_author_overrides_three_methods() -> None:
    replay = Kept(**configs())
    replay.insert_chunk(chunk_of("FM"))
    assert len(replay.chunks) == 1
    columns = replay.sample_columns(3)
    assert {name: column.shape for name, column in columns.items()} == {
        "obs/image": (3,),
        "rewards": (3,),
    }
    assert replay.can_insert()
    assert replay.can_sample(3)
    assert replay.evict() == 0
    assert replay.learner_config.replay.capacity == 100_000
    assert replay.statistics() == {}


def test_curves_of_an_author_are_drawn_at_the_steps_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = Kept(**configs())
    steps: list[int] = []
    monkeypatch.setattr(replay.tensorplex, "add_scalars", lambda _, step: steps.append(step))
    # After a learner went back to a checkpoint, curves do not.
    for env_steps in (0, 300, 200, 400):
        replay.on_learner(version=1, least_mass=1.0, env_steps=env_steps)
        replay.update_tensorplex({"my/age": 1.0})
    assert steps == [0, 300, 300, 400]
    assert replay.env_steps == 400


def test_columns_are_spelled_out() -> None:
    zero = np.zeros(2)
    nested = {"obs": (zero, {"a": zero}), "extras": {}, "rewards": zero, "obs_next/x": zero}
    assert list(to_columns(nested)) == ["obs/0", "obs/1/a", "rewards", "obs_next/x"]


def test_an_insert_of_transitions_is_named_with_what_comes() -> None:
    class Unpacks(Kept):
        def insert(self, experience: Any) -> None:
            obs, _action, _reward = experience
            self.chunks.append(obs)

    class Indexes(Kept):
        def insert(self, experience: Any) -> None:
            self.chunks.append(experience["obs"])

    for kind in (Unpacks, Indexes):
        words = rf"{kind.__name__}\.insert.*gets a Chunk.*surreal_like\.TupleReplay"
        with pytest.raises(TypeError, match=words):
            kind(**configs()).insert_chunk(chunk_of("FM"))


def test_an_unknown_kind_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'Zzz': there is FIFOReplay, .*UniformReplay; your own"):
        load_replay_class({"replay": {"type": "Zzz"}})
