"""The parts put together: storage, selector, limiter and view."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import ConfigError, SurrealError
from surreal_like.errors import DataError
from surreal_like.replay.kinds import UniformReplay
from surreal_like.replay.select.selector import Selector, UniformSelector
from surreal_like.replay.storage import Rows
from surreal_like.replay.table import Table
from tests.examples import examples
from tests.surreal_like.replay.chunks import EPISODES, Sender, chunk_of, counting
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Twin


def make_replay(**settings: Any) -> UniformReplay:
    return UniformReplay(**configs(**{"capacity": 1000, "min_size": 1} | settings))


def filled(rows: int, **settings: Any) -> UniformReplay:
    replay = make_replay(**settings)
    for sequence in range(1, rows // 10 + 1):
        replay.insert(chunk_of("FMMMT", "FMMMM", sequence=sequence, first_id=10 * sequence))
    return replay


@pytest.mark.parametrize("case", EPISODES)
def test_every_sampleable_row_is_sampled_and_no_other(case: str) -> None:
    text = EPISODES[case]
    replay = make_replay()
    replay.insert(chunk_of(text, text))
    batch = replay.aggregate_batch(replay.sample(1000))
    ids = {int(number) for number in batch["extras/id"]}
    starts = [t for t, letter in enumerate(text[:-1]) if letter not in "TU"]
    assert ids == {2 * t + n for t in starts for n in (0, 1)}
    assert replay.statistics()["sampleable"] == len(ids)
    ends = {2 * t + n + 2 for t in starts for n in (0, 1)}
    assert set(batch["obs_next/position"][:, 0].astype(int)) == ends
    np.testing.assert_array_equal(batch["weights"], np.ones(1000, np.float32))
    terminal = [text[int(number) // 2 + 1] == "T" for number in batch["extras/id"]]
    np.testing.assert_array_equal(batch["dones"], terminal)


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32), operations=OPERATIONS, n=st.integers(1, 5))
def test_sampleable_rows_equal_those_of_the_twin(
    seed: int, operations: list[tuple[int, str, int]], n: int
) -> None:
    twin, traffic = Twin(60), Traffic(seed)
    replay = make_replay(capacity=60, algo={"n_step": n})
    for index, what, steps in operations:
        for chunk in traffic.arrivals(index, what, steps):
            replay.insert(chunk)
            twin.insert(chunk)
        ready = twin.ready(n)
        assert replay.statistics()["sampleable"] == len(ready)
        assert replay.start_sample_condition() is bool(ready)
        if ready:
            assert set(replay.sample(50).numbers.tolist()) <= set(ready)


def test_a_subclass_decides_when_sampling_starts() -> None:
    class Patient(UniformReplay):
        def start_sample_condition(self) -> bool:
            return False

    replay = Patient(**configs(min_size=1))
    replay.insert(chunk_of("FMMMT"))
    assert not replay.can_sample(1)


class NewestSelector(UniformSelector):
    """Draws the newest sampleable row, again and again."""

    def _choose(self, batch_size: int) -> Rows:
        return np.full(batch_size, self.list_rows()[-1])


class NewestReplay(Table):
    def make_selector(self, capacity: int, seed: int) -> Selector:
        return NewestSelector(capacity, seed=seed)


def test_a_kind_of_replay_is_a_table_with_a_selector_of_its_own() -> None:
    replay = NewestReplay(**configs(capacity=40, min_size=1, algo={"n_step": 2}))
    for sequence in range(1, 9):
        replay.insert(chunk_of("FMMMT", "FMMMM", sequence=sequence, first_id=10 * sequence))
        batch = replay.aggregate_batch(replay.sample(3))
        # Rows are numbered along time first: of the last two, one ends, one waits for a successor.
        assert batch["extras/id"].tolist() == [10 * sequence + 6] * 3
    restored = NewestReplay(**configs(capacity=40, min_size=1, algo={"n_step": 2}))
    restored.restore(copy.deepcopy(replay.state()))
    assert restored.sample(2).numbers.tolist() == replay.sample(2).numbers.tolist()


def test_samples_per_insert_holds_both_sides_back() -> None:
    small = {"sender": {"flush_iteration": 5}, "learner": {"batches_per_request": 1}}
    replay = make_replay(samples_per_insert=2.0, batch_size=16, session=small)
    sender, inserted, sampled = Sender("a", 2, Random(0), counting()), 0, 0
    while inserted < 50:
        if replay.can_insert():
            replay.insert(sender.cut(5))
            inserted += 1
        else:
            assert replay.can_sample(16)
            replay.sample(16)
            sampled += 16
    statistics = replay.statistics()
    assert statistics["sampled"] == sampled
    due = 2 * (replay.limiter.inserted - 1)
    assert abs(due - sampled) <= replay.limiter.tolerance == 72
    while replay.can_sample(16):
        replay.sample(16)
    assert replay.can_insert()


def test_an_unroll_is_refused_and_changes_nothing() -> None:
    replay = filled(10)
    before, unroll = replay.statistics(), chunk_of("FMMMT", "FMMMM", sequence=2)
    unroll.overlap = 1
    with pytest.raises(DataError, match="an unroll, whose last row comes twice"):
        replay.insert(unroll)
    assert replay.statistics() == before


def test_the_oldest_rows_make_room() -> None:
    replay = filled(5000, capacity=100)
    statistics = replay.statistics()
    assert (statistics["size"], statistics["inserted"], statistics["evicted"]) == (100, 5000, 4900)
    assert replay.sample(500).numbers.min() >= 4900
    assert statistics["size_bytes"] > 100 * 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"capacity": 1000, "min_size": 999}, "min_size is 999, but 1000 rows of capacity - 2"),
        (
            {"capacity": 1000, "min_size": 995, "algo": {"n_step": 3}},
            "1000 rows of capacity - 6 rows that still wait",
        ),
    ],
)
def test_settings_that_must_deadlock_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_replay(**settings)


def test_a_minimum_that_short_episodes_or_large_rows_put_out_of_reach_is_refused() -> None:
    replay = make_replay(capacity=100, min_size=80)
    for sequence in range(1, 20):
        replay.insert(chunk_of("FTFTFTFTFT", sequence=sequence))
    with pytest.raises(ConfigError, match="after 200 rows only 50 of the 100 rows kept"):
        replay.insert(chunk_of("FTFTFTFTFT", sequence=20))
    replay = make_replay(min_size=80, max_bytes=2000)
    with pytest.raises(
        ConfigError, match=r"37 rows of capacity \(2000 bytes .* / 53 bytes of a row\) - 2 rows"
    ):
        replay.insert(chunk_of("FMMM"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_bytes": 4000, "min_size": 99}, r"99, but 100 rows of capacity \(4000 bytes of .*98"),
        ({"max_bytes": 4000}, r"100 rows to a shard \(4000 .* 40 bytes .*\), .* 100 x .* 2 = 200"),
        ({"capacity": 199}, r"leaves 199 rows to a shard, .* 100 x num_envs 2 = 200 rows: each"),
        (
            {"session": {"max_message_bytes": 6399}},
            r"max_message_bytes is 6399, but one chunk of 100 .* x 2 streams x 32 bytes .* = 6400",
        ),
        (
            {"session": {"max_message_bytes": 16383}},
            r"one answer of 512 rows x 32 bytes of a row = 16384: .* lower learner\.batches_per",
        ),
        ({"evict_rule": {"max_version_lag": 9}}, "max_version_lag is 9, but it is for FIFOReplay"),
    ],
)
def test_what_must_deadlock_is_seen_before_a_start(settings: dict[str, Any], said: str) -> None:
    replay = make_replay(**settings)
    make_replay().check_start(40)
    with pytest.raises(ConfigError, match=said):
        replay.check_start(40)


def test_replayed_unrolls_are_for_another_replay() -> None:
    with pytest.raises(ConfigError, match=r"replay_proportion is 0\.5, .* it is for FIFOReplay"):
        make_replay(replay_proportion=0.5)


def aged(**age: float) -> UniformReplay:
    """Chunks of 5 x 2 rows, the first of version 0, the next of 10, of 20, ..."""
    rule = {"max_versions": 0, "half_life_versions": 0.0} | age
    replay = make_replay(capacity=60, age=rule)
    for number in range(8):
        chunk = chunk_of("MMMMM", "MMMMM", sequence=number + 1, first_id=10 * number)
        chunk.columns["version"][:] = 10 * number
        replay.insert(chunk)
    return replay


def test_old_rows_are_drawn_less_often() -> None:
    replay = aged(half_life_versions=10.0)
    batch = replay.aggregate_batch(replay.sample(20_000))
    shares = [(batch["version"] == 10 * number).mean() for number in range(8)]
    masses = [0, 0] + [10 * 0.5 ** (7 - number) for number in range(2, 7)] + [8]
    np.testing.assert_allclose(shares, np.array(masses) / sum(masses), atol=0.015)
    assert replay.statistics()["sampleable"] == 58


def test_rows_that_are_too_old_are_kept_and_not_drawn() -> None:
    replay = aged(max_versions=15)
    for _ in range(3):  # one that was restored goes on so
        batch = replay.aggregate_batch(replay.sample(500))
        assert set(batch["version"]) == {60, 70}
        assert replay.statistics()["size"] == 60
        state, replay = copy.deepcopy(replay.state()), aged(max_versions=15)
        replay.restore(state)
    replay.newest_version = 100  # as the learner says with its requests
    assert not replay.can_sample(1)
    with pytest.raises(SurrealError, match="no row is young enough"):
        replay.sample(1)


def test_where_all_are_too_old_new_rows_are_let_in() -> None:
    """Else the samples would wait for rows, and the rows for samples."""
    replay = make_replay(
        samples_per_insert=1.0, age={"max_versions": 5, "half_life_versions": 0.0}, capacity=9000
    )
    sender = Sender("a", 2, Random(0), counting())
    while replay.can_insert():
        chunk = sender.cut(100)
        chunk.columns["version"][:] = 1
        replay.insert(chunk)
    assert replay.can_sample(1)
    replay.newest_version = 9
    assert replay.can_insert()
    assert not replay.can_sample(1)
    chunk = sender.cut(100)
    chunk.columns["version"][:] = 9
    replay.insert(chunk)
    assert replay.can_sample(1)
    assert not replay.can_insert()


def test_larger_chunks_than_announced_widen_the_band() -> None:
    replay = make_replay(samples_per_insert=1.0, capacity=10_000)
    before = replay.limiter.tolerance
    replay.insert(chunk_of("F" + 999 * "M"))
    assert replay.limiter.tolerance == before + 2 * 800


def test_a_shard_has_its_part() -> None:
    replay = make_replay(capacity=301, min_size=31, replay_shards=3)
    replay.insert(chunk_of("F" + 99 * "M"))
    replay.insert(chunk_of(50 * "M", sequence=2))
    assert replay.statistics()["size"] == 101
    replay = make_replay(capacity=301, min_size=31, replay_shards=3)
    replay.insert(chunk_of("F" + 10 * "M"))
    assert not replay.start_sample_condition()
    replay.insert(chunk_of("M", sequence=2))
    assert replay.start_sample_condition()


def test_what_the_sample_names_may_have_gone() -> None:
    replay = filled(100, capacity=100)
    sample = replay.sample(32)
    replay.insert(chunk_of("F" + 99 * "M", sender="agent-1"))
    with pytest.raises(DataError, match="is not in this replay"):
        replay.aggregate_batch(sample)
    with pytest.raises(SurrealError, match="no row can be sampled"):
        make_replay().sample(1)


@pytest.mark.parametrize("capacity", [200, 100, 400])
def test_restored_replay_goes_on_as_the_saved_one(capacity: int) -> None:
    common = {"samples_per_insert": 4.0, "algo": {"n_step": 3}}
    saved = filled(370, capacity=200, **common)
    saved.sample(100)
    restored = make_replay(capacity=capacity, **common)
    restored.restore(copy.deepcopy(saved.state()))
    if capacity >= 200:
        assert {**restored.statistics(), "size_bytes": 0} == {**saved.statistics(), "size_bytes": 0}
    chunk = chunk_of("MMM", "FMM", sequence=38)
    for replay in (saved, restored):
        replay.insert(chunk)
    if capacity == 200:
        for _ in range(3):
            one, other = (r.aggregate_batch(r.sample(64)) for r in (saved, restored))
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])
    statistics = restored.statistics()
    ready = restored.view.ready_rows(restored.storage)
    assert statistics["sampleable"] == np.count_nonzero(ready) == restored.limiter.size
    assert saved.can_insert() == restored.can_insert()


def test_reseed_and_default_seed() -> None:
    def draw(seed: int | None, run_seed: int = 0) -> list[int]:
        replay = filled(500, session={"seed": run_seed})
        if seed is not None:
            replay.reseed(seed)
        return [int(number) for number in replay.sample(50).numbers]

    assert draw(None) == draw(None) != draw(None, 1)
    assert draw(7) == draw(7) != draw(8)
