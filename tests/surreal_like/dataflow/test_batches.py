"""Operators on batches and local replay: sizes, statistics, copies, wrong batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.dataflow import (
    STALLED,
    Flow,
    LocalReplay,
    Queue,
    concat,
    dequeue,
    enqueue,
    from_items,
    mix_in,
    replay,
    standardize,
    store,
)
from surreal_like.dataflow.items import columns_of, copy_item
from surreal_like.errors import DataError


def rows(first: int, count: int, **more: Any) -> Batch:
    """Rows whose reward is their number."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    obs = {"place": numbers[:, None] * 10, "image": numbers[:, None, None].to(torch.uint8)}
    return Batch(obs=obs, rewards=numbers, weights=torch.ones(count), extras={}, **more)


def unrolls(first: int, streams: int, steps: int = 3) -> Batch:
    """Unrolls whose rewards are the number of their stream; the first row of each has no action."""
    numbers = torch.arange(first, first + streams, dtype=torch.float32)
    mask = torch.ones(steps, streams)
    mask[0] = 0.0
    return Batch(
        obs=numbers.expand(steps + 1, streams)[..., None].clone(),
        rewards=numbers.expand(steps, streams).clone(),
        mask=mask,
        replayed=numbers > 2,
        extras={"logits": torch.zeros(steps, streams, 2)},
    )


def test_rows_are_those_with_an_action() -> None:
    assert rows(0, 5).rows == 5
    assert unrolls(0, 4).rows == 8


def test_columns_are_standardized_over_the_rows_that_count() -> None:
    batch = unrolls(0, 4)
    batch["advantages"] = torch.randn(3, 4)
    batch.extras["gain"] = 3.0 + torch.randn(3, 4)
    batch["advantages"][0] = 1e6
    (out,) = from_items([batch]).for_each(standardize("advantages", "gain"))
    for column in (out.advantages, out.extras["gain"]):
        kept = column[1:].numpy()
        assert kept.mean() == pytest.approx(0.0, abs=1e-6)
        assert kept.std() == pytest.approx(1.0, abs=1e-5)
        assert not column[0].any()


def test_a_missing_column_is_named_with_those_there_are() -> None:
    flow = from_items([unrolls(0, 1)]).for_each(standardize("gain"))
    with pytest.raises(DataError, match=r"no column 'gain'; it has obs, rewards.*extras/logits"):
        flow.pull()


def test_concat_never_splits() -> None:
    sizes = [3, 0, 2, 4, 9, 1, 7]
    batches = [rows(10 * index, size) for index, size in enumerate(sizes)]
    out = from_items(batches).combine(concat(5)).take(10)
    assert [each.rows for each in out] == [5, 13, 8]
    assert out[0].rewards.tolist() == [0, 1, 2, 20, 21]
    assert out[0].obs["place"][:, 0].tolist() == [0, 10, 20, 200, 210]


def test_concat_joins_streams_of_unrolls() -> None:
    (out,) = from_items([unrolls(0, 2), unrolls(5, 3)]).combine(concat(9))
    assert out.rewards[0].tolist() == [0, 1, 5, 6, 7]
    assert out.obs.shape == (4, 5, 1)
    assert out.replayed.tolist() == [False, False, True, True, True]
    assert out.extras["logits"].shape == (3, 5, 2)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (unrolls(0, 2, steps=4), "unrolls of 3 and of 4 steps"),
        (Batch(unrolls(0, 2), more=torch.zeros(3, 2)), "not all batches have the columns more"),
    ],
)
def test_batches_that_do_not_fit_are_not_joined(other: Batch, words: str) -> None:
    flow = from_items([unrolls(0, 1), other]).combine(concat(5))
    with pytest.raises(DataError, match=words):
        list(flow)


def test_mix_in_replays_as_often_as_it_says() -> None:
    assert from_items("abc").combine(mix_in(0, 0)).take(9) == ["a", "b", "c"]
    out = from_items(range(100)).combine(mix_in(3, 2)).take(1000)
    assert out[::3] == list(range(100))
    assert all(new - 3 < old <= new for i, old in enumerate(out) for new in [i // 3])
    half = from_items(range(1000)).combine(mix_in(1, 0.5)).take(9999)
    assert 1400 < len(half) < 1600
    assert half == from_items(range(1000)).combine(mix_in(1, 0.5)).take(9999)
    assert half != from_items(range(1000)).combine(mix_in(1, 0.5, seed=1)).take(9999)


def test_columns_that_are_added_to_a_mixed_in_item_are_not_seen_in_others() -> None:
    for batch in from_items([rows(0, 1), rows(1, 1)]).combine(mix_in(1, 3)):
        assert "advantages" not in batch
        batch["advantages"] = batch.rewards


def test_a_local_replay_is_a_ring() -> None:
    local = LocalReplay(capacity=5, min_size=3)
    fill, drawn = from_items([rows(0, 2), rows(2, 4), rows(6, 9)]), replay(local, batch_size=64)
    fill = fill.for_each(store(local))
    fill.pull()
    assert drawn.pull() is STALLED
    assert "min_size 3 in its LocalReplay, which holds 2" in str(drawn.standstill())
    fill.pull()
    assert set(drawn.pull().rewards.tolist()) == {1, 2, 3, 4, 5}
    fill.pull()
    batch = drawn.pull()
    assert set(batch.rewards.tolist()) == {10, 11, 12, 13, 14}
    local.insert(rows(15, 2))
    batch = drawn.pull()
    assert set(batch.rewards.tolist()) == {12, 13, 14, 15, 16}
    assert torch.equal(batch.obs["place"][:, 0], 10 * batch.rewards)
    assert batch.obs["image"].dtype == torch.uint8


def test_a_local_replay_of_unrolls_holds_streams() -> None:
    local = LocalReplay(capacity=4)
    local.insert(unrolls(0, 3))
    local.insert(unrolls(3, 2))
    batch = local.sample(50)
    assert batch.rewards.shape == (3, 50)
    assert set(batch.rewards[0].tolist()) == {1, 2, 3, 4}
    assert torch.equal(batch.obs[0, :, 0], batch.rewards[0])
    assert torch.equal(batch.replayed, batch.rewards[0] > 2)
    with pytest.raises(DataError, match=r"holds obs: .*\[4, 1\].*but a batch has .*\[5, 1\]"):
        local.insert(unrolls(0, 2, steps=4))


def test_draws_repeat() -> None:
    drawn = []
    for seed in (0, 0, 1):
        local = LocalReplay(9, seed=seed)
        local.insert(rows(0, 9))
        drawn.append(local.sample(20).rewards.tolist())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: LocalReplay(0), "not 1 and 0"),
        (lambda: LocalReplay(3, min_size=4), "not 4 and 3"),
        (lambda: replay(LocalReplay(3), batch_size=0), "batch_size is 0"),
        (lambda: concat(0), r"concat\(0\)"),
        (lambda: mix_in(0, 1.5), r"mix_in\(0, 1.5\): .*needs slots"),
        (lambda: mix_in(-1, 0), r"mix_in\(-1, 0\)"),
    ],
)
def test_wrong_arguments_are_refused(build: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build()


class Reused(Flow):
    """Gives batches 1, 2, ... in one memory, and spoils it before each pull, as replay may."""

    def __init__(self, batches: int) -> None:
        super().__init__("reused")
        self._memory = np.zeros(4, np.float32)
        self._number = 0
        self._batches = batches

    def pull(self) -> Batch:
        self._memory[:] = np.nan
        if self._number == self._batches:
            raise StopIteration
        self._number += 1
        self._memory[:] = self._number
        return make_batch({"rewards": torch.from_numpy(self._memory)})


def kept_by_queue(flow: Flow) -> list[Any]:
    queue = Queue(9)
    list(flow.for_each(enqueue(queue)))
    return [dequeue(queue).pull() for _ in range(3)]


def kept_by_store(flow: Flow) -> list[Any]:
    local = LocalReplay(12)
    list(flow.for_each(store(local)))
    return [local.sample(40)]


def kept_by_clones(flow: Flow) -> list[Any]:
    first, second = flow.duplicate(2)
    list(first)
    return list(second)


def kept_by_mix_in(flow: Flow) -> list[Any]:
    """What is replayed behind the last item."""
    return [copy_item(item) for item in flow.combine(mix_in(3, 30.0))][-30:]


KEEPERS = {
    "batch": lambda flow: flow.batch(3).take(1)[0],
    "concat": lambda flow: flow.combine(concat(12)).take(1),
    "mix_in": kept_by_mix_in,
    "enqueue": kept_by_queue,
    "store": kept_by_store,
    "duplicate": kept_by_clones,
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_operators_that_keep_batches_copy_them(keep: Any) -> None:
    values = torch.cat([batch.rewards for batch in keep(Reused(3))])
    assert set(values.tolist()) == {1.0, 2.0, 3.0}


def test_a_copy_keeps_what_is_needed_of_its_origin() -> None:
    columns = {"version": np.arange(3), "indices": np.arange(3), "rewards": np.ones(3)}
    batch = make_batch({name: torch.from_numpy(each) for name, each in columns.items()})
    batch.origin = Sampled(columns, shard=1, incarnation=7, stamps={})
    copy = copy_item(batch)
    columns["version"][:] = 99
    assert copy.origin.columns["version"].tolist() == [0, 1, 2]
    assert (copy.origin.shard, copy.origin.incarnation) == (1, 7)
    assert copy.version.tolist() == [0, 1, 2]
    copy["more"] = 1
    copy.extras["more"] = 1
    assert "more" not in batch
    assert not batch.extras


def test_columns_are_named_as_replay_names_them() -> None:
    assert set(columns_of(rows(0, 1))) == {"obs/place", "obs/image", "rewards", "weights"}
