"""One namedtuple per transition, for an author's own list."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_like.data.batch import make_batch
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.tuple_replay import ExpTuple, TupleReplay
from tests.examples import examples
from tests.surreal_like.replay.chunks import EPISODES, chunk_of
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Twin, transition


class ListReplay(TupleReplay):
    """What an author writes."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.memory: list[ExpTuple] = []
        self.random = Random(0)

    def insert(self, experience: ExpTuple) -> None:
        self.memory.append(experience)
        del self.memory[:-1000]

    def sample(self, batch_size: int) -> list[ExpTuple]:
        return self.random.choices(self.memory, k=batch_size)

    def start_sample_condition(self) -> bool:
        return len(self.memory) > 4


def make_replay(n: int = 1, gamma: float = 0.5) -> ListReplay:
    return ListReplay(**configs(algo={"n_step": n, "gamma": gamma}))


@pytest.mark.parametrize("split", [1, 2, 3, 100])
@pytest.mark.parametrize("case", EPISODES)
def test_each_transition_is_inserted_once(case: str, split: int) -> None:
    text = EPISODES[case]
    replay = make_replay()
    for sequence, start in enumerate(range(0, len(text), split), start=1):
        replay.insert_chunk(
            chunk_of(text[start : start + split], sequence=sequence, first_id=start)
        )
    starts = [t for t, letter in enumerate(text[:-1]) if letter not in "TU"]
    assert [int(one.action) for one in replay.memory] == starts
    for t, one in zip(starts, replay.memory, strict=True):
        assert one.obs[0]["position"].tolist() == [t, -t]
        assert one.obs[1]["position"].tolist() == [t + 1, -t - 1]
        assert one.reward == 1.0
        assert one.done is (text[t + 1] == "T")
        assert one.info["terminated"] is (text[t + 1] == "T")
        assert one.info["truncated"] is (text[t + 1] == "U")
        assert one.info["discount"] == (0.0 if text[t + 1] == "T" else 0.5)
        assert one.info["version"] == t // 10
        assert one.info["extras"]["id"] == t


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), operations=OPERATIONS, n=st.integers(1, 4))
def test_tuples_equal_the_transitions_of_the_twin(
    seed: int, operations: list[tuple[int, str, int]], n: int
) -> None:
    twin, traffic, replay, ledger = Twin(10_000), Traffic(seed), make_replay(n), AckTracker()
    for index, what, steps in operations:
        for chunk in traffic.arrivals(index, what, steps):
            if ledger.admit(chunk):  # a server lets no older incarnation in
                ledger.count_inserted(chunk)
                replay.insert_chunk(chunk)
                twin.insert(chunk)
    rows = {
        int(row.values["action"]): transition(row, n, 0.5, lambda reward: reward)
        for row in twin.ready(n).values()
    }
    assert sorted(rows) == sorted(int(one.action) for one in replay.memory)
    for one in replay.memory:
        row = rows[int(one.action)]
        assert one.reward == pytest.approx(row["rewards"], rel=1e-5, abs=1e-6)
        assert one.info["discount"] == pytest.approx(row["discounts"])
        assert (one.done, one.info["truncated"]) == (row["dones"], row["truncated"])
        for key in ("image", "position"):
            np.testing.assert_array_equal(one.obs[0][key], row["obs"][key])
            np.testing.assert_array_equal(one.obs[1][key], row["obs_next"][key])


def test_a_batch_is_as_the_learner_expects_it() -> None:
    replay = make_replay()
    assert not replay.can_sample(4)
    replay.insert_chunk(chunk_of("FMMMMT", "FMMUFM"))
    assert replay.can_sample(4)
    assert replay.can_insert()
    batch = make_batch(replay.sample_columns(32))
    assert batch.obs["image"].shape == batch.obs_next["image"].shape == (32, 2, 2)
    assert batch.obs["image"].dtype == np.uint8
    np.testing.assert_array_equal(batch.obs_next["position"][:, 0], batch.actions + 2)
    np.testing.assert_array_equal(batch.discounts, 0.5 * (1 - batch.dones))
    np.testing.assert_array_equal(batch.weights, np.ones(32))
    np.testing.assert_array_equal(batch.indices, np.full(32, -1))
    np.testing.assert_array_equal(batch.extras["id"], batch.actions)
    assert batch.rewards.dtype == batch.dones.dtype == batch.discounts.dtype == np.float32


class Own(ListReplay):
    """An author who aggregates the five entries of the document and no more."""

    def aggregate_batch(self, sample: Any) -> dict[str, Any]:
        whole = super().aggregate_batch(sample)
        return {name: whole[name] for name in ("obs", "obs_next", "actions", "rewards", "dones")}


@pytest.mark.parametrize("n", [1, 2])
def test_what_the_author_leaves_out_is_filled_in(n: int) -> None:
    mine, whole = (kind(**configs(algo={"gamma": 0.5, "n_step": n})) for kind in (Own, ListReplay))
    for replay in (mine, whole):
        replay.insert_chunk(chunk_of("FMMMMT"))
    columns, expected = mine.sample_columns(32), whole.sample_columns(32)
    assert columns.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(columns[name], column)
        assert columns[name].dtype == column.dtype


class Plain(Own):
    """An author whose samples are no tuples of ours."""

    def sample(self, batch_size: int) -> Any:
        return iter(super().sample(batch_size))

    def aggregate_batch(self, sample: Any) -> dict[str, Any]:
        return super().aggregate_batch(list(sample))


def test_without_tuples_it_is_derived_where_that_can_be() -> None:
    replay = Plain(**configs(algo={"gamma": 0.5}))
    replay.insert_chunk(chunk_of("FMMMMT"))
    replay.newest_version = 7
    columns = replay.sample_columns(32)
    np.testing.assert_array_equal(columns["discounts"], 0.5 * (1 - columns["dones"]))
    np.testing.assert_array_equal(columns["version"], np.full(32, 7))
    replay = Plain(**configs(algo={"gamma": 0.5, "n_step": 2}))
    replay.insert_chunk(chunk_of("FMMMMT"))
    with pytest.raises(DataError, match=r"Plain.* left 'discounts' out: .* info\['discount'\]"):
        replay.sample_columns(32)


def test_a_batch_without_rewards_is_refused() -> None:
    class Forgetful(ListReplay):
        def aggregate_batch(self, sample: Any) -> dict[str, Any]:
            return {"obs": np.zeros((4, 1)), "obs_next": np.zeros((4, 1)), "actions": np.zeros(4)}

    replay = Forgetful(**configs())
    replay.insert_chunk(chunk_of("FMMMMT"))
    with pytest.raises(DataError, match=r"Forgetful.aggregate_batch\(\) left 'rewards' out"):
        replay.sample_columns(4)


def test_sample_is_asked_for_one_batch() -> None:
    assert make_replay().batches_at_once(8) == 1


def test_a_bare_observation_and_no_extras() -> None:
    columns = chunk_of("FMT").columns
    kept = {
        name: columns[name] for name in ("step_type", "reward", "discount", "version", "action")
    }
    obs = np.arange(3, dtype=np.float32).reshape(3, 1)
    replay = make_replay()
    replay.insert_chunk(Chunk({**kept, "obs": obs}, 1, [0]))
    assert [(float(a), float(b)) for a, b in (one.obs for one in replay.memory)] == [(0, 1), (1, 2)]
    assert replay.memory[0].info["extras"] == {}
    assert "extras" not in replay.sample_columns(4)


def test_chunks_with_other_columns_are_refused() -> None:
    replay = make_replay()
    replay.insert_chunk(chunk_of("FM"))
    other = chunk_of("MM", sequence=2)
    other.columns = {name: c for name, c in other.columns.items() if name != "extras/id"}
    with pytest.raises(DataError, match="column 'extras/id' is missing"):
        replay.insert_chunk(other)
