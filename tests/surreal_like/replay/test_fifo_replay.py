"""Unrolls in a queue: each learned from once, the oldest first, none lost uncounted."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import ConfigError, SurrealError
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_accounts import UNLEARNED
from surreal_like.replay.kinds import FIFOReplay, UniformReplay
from surreal_like.replay.storage import LINK_BYTES
from tests.surreal_like.replay.chunks import columns_of
from tests.surreal_like.replay.configs import configs

STEPS = 3
OBSERVED = ("obs/image", "obs/position")


def make(*, max_message_bytes: int = 10**6, **replay: Any) -> FIFOReplay:
    options = {"capacity": 24, "batch_size": 4} | replay
    session = {"sender": {"flush_iteration": STEPS}, "max_message_bytes": max_message_bytes}
    return FIFOReplay(**configs(algo={"gamma": 0.5}, session=session, **options))


def unroll(
    number: int = 1, *, texts: Sequence[str] = ("FMMM", "MTFM"), version: int | None = None
) -> Chunk:
    columns = columns_of(texts, first_id=10 * number)
    if version is not None:
        columns["version"][:] = version
    return Chunk(columns, number, [0, 1], sender="agent-0", incarnation=1, overlap=1)


def numbers_of(batch: Any) -> list[int]:
    return sorted({int(i) // 10 for i in batch["extras/id"].flat})


def test_R_unrolls_come_once_and_in_order() -> None:
    replay = make()
    for number in (1, 2, 3, 4):
        replay.insert(unroll(number))
    first = replay.aggregate_batch(replay.sample(4))
    second = replay.aggregate_batch(replay.sample(4))
    assert (numbers_of(first), numbers_of(second)) == ([1, 2], [3, 4])
    assert first["obs/position"].shape == (STEPS + 1, 4, 2)
    assert first["actions"].shape == (STEPS, 4)
    assert not replay.can_sample(4)
    with pytest.raises(SurrealError, match="4 streams asked for, but there are 0 unrolls of 2"):
        replay.sample(4)


def test_a_full_queue_makes_agents_wait() -> None:
    replay = make()  # 24 rows: four unrolls of 6
    for number in range(1, 5):
        assert replay.can_insert()
        replay.insert(unroll(number))
    assert not replay.can_insert()
    replay.sample(2)
    assert replay.can_insert()
    replay.insert(unroll(5))
    assert not replay.can_insert()


def test_or_loses_its_oldest_unrolls_and_counts_them() -> None:
    replay = make(when_full="drop_oldest")
    for number in range(1, 8):
        assert replay.can_insert()
        replay.insert(unroll(number))
    statistics = replay.statistics()
    assert (statistics["size"], statistics["evicted"], statistics["inserted"]) == (24, 18, 42)
    assert numbers_of(replay.aggregate_batch(replay.sample(8))) == [4, 5, 6, 7]


def test_none_is_lost_where_more_come_than_there_is_room_for() -> None:
    """On drain and after a restart."""
    replay = make()
    for number in range(1, 14):
        replay.insert(unroll(number))
    assert not replay.can_insert()
    assert numbers_of(replay.aggregate_batch(replay.sample(26))) == list(range(1, 14))
    assert replay.statistics()["evicted"] == 0


def test_memory_is_that_of_the_unrolls_that_wait_at_once() -> None:
    replay = make(capacity=600)
    for number in range(1, 41, 2):
        replay.insert(unroll(number))
        replay.insert(unroll(number + 1))
        assert numbers_of(replay.aggregate_batch(replay.sample(4))) == [number, number + 1]
    assert replay.statistics()["size_bytes"] == 2 * (unroll().size_bytes + 8 * LINK_BYTES)


def test_what_is_too_old_is_never_learned_from() -> None:
    rule = {"max_version_lag": 2}
    replay = make(evict_rule=rule)
    replay.insert(unroll(1, version=1))
    replay.insert(unroll(2, version=4))
    replay.insert(unroll(3, version=2))
    replay.newest_version = 4
    assert replay.can_sample(4)
    assert numbers_of(replay.aggregate_batch(replay.sample(4))) == [2, 3]
    assert replay.statistics()["evicted"] == 6
    replay.insert(unroll(4, version=4))
    replay.newest_version = 7  # as the learner says with its requests
    assert not replay.can_sample(2)
    assert replay.statistics()["evicted"] == 12


def test_versions_of_a_guest_make_no_rows_of_others_too_old() -> None:
    replay = make(evict_rule={"max_version_lag": 2})
    replay.insert(unroll(1, version=4))
    ahead = unroll(2, version=900)
    ahead.joined = True
    replay.insert(ahead)
    assert replay.can_sample(4)
    assert replay.statistics()["evicted"] == 0


def test_rows_that_were_not_given_are_counted_by_their_fate() -> None:
    replay = make(evict_rule={"max_version_lag": 2}, when_full="drop_oldest")
    for number, version in enumerate((1, 2, 5, 5, 5, 5), 1):
        replay.insert(unroll(number, version=version))
    # Two had no room; of the others none is too old yet.
    fates = dict.fromkeys(UNLEARNED, 0)
    assert replay.count_unlearned() == {**fates, "overflowed": 12, "waiting": 24}
    replay.sample(2)
    replay.insert(unroll(7, version=8))
    replay.on_learner(version=7, least_mass=1.0, since=6)
    replay.evict()
    assert replay.count_unlearned() == {**fates, "overflowed": 12, "taken_over": 18, "waiting": 6}
    replay.on_learner(version=11, least_mass=1.0)
    replay.evict()
    assert replay.count_unlearned() == {**fates, "overflowed": 12, "taken_over": 18, "too_old": 6}
    rows = replay.statistics()
    assert rows["inserted"] == rows["sampled"] + sum(replay.count_unlearned().values()) == 42


def test_a_replay_that_draws_rows_again_counts_none() -> None:
    assert UniformReplay(**configs(capacity=100, min_size=1)).count_unlearned() == {}


def test_what_was_acted_before_a_trial_loaded_another_one_is_evicted() -> None:
    replay = make()
    for number, version in ((1, 3), (2, 4), (3, 2), (4, 5)):
        replay.insert(unroll(number, version=version))
    replay.on_learner(version=4, least_mass=1.0, since=4)
    assert replay.can_sample(4)
    assert numbers_of(replay.aggregate_batch(replay.sample(4))) == [2, 4]
    assert replay.statistics()["evicted"] == 12


def test_the_rows_that_an_agent_leaves_with_are_no_unroll() -> None:
    replay = make()
    short = Chunk(columns_of(("FM", "MM")), 1, [0, 1], sender="agent-0", tail=True)
    assert replay.refusal(short) == "short unroll"
    assert replay.refusal(unroll()) is None
    with pytest.raises(DataError, match="unroll of 1 steps x 2 streams, expected 3 x 2"):
        replay.insert(short)


def test_settings_that_must_deadlock_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch_size is 5 streams, no multiple of .*num_envs 2"):
        make(batch_size=5)
    with pytest.raises(ConfigError, match=r"10 streams x 3 steps = 30 rows"):
        make(batch_size=10)


def test_half_of_each_batch_has_been_learned_from_before() -> None:
    replay = make(replay_proportion=0.5, replay_capacity=24)
    for number in (1, 2, 3, 4):
        replay.insert(unroll(number))
    first = replay.aggregate_batch(replay.sample(4))
    assert (numbers_of(first), first["replayed"].tolist()) == ([1, 2], [False] * 4)
    seen = set()
    for number in (3, 4):
        assert replay.can_sample(4)
        batch = replay.aggregate_batch(replay.sample(4))
        assert batch["replayed"].tolist() == [False, False, True, True]
        assert {int(i) // 10 for i in batch["extras/id"][:, :2].flat} == {number}
        seen |= {int(i) // 10 for i in batch["extras/id"][:, 2:].flat}
    assert seen <= {1, 2, 3}
    assert not replay.can_sample(4)  # replayed unrolls alone are no batch
    numbers = replay.statistics()
    names = ("inserted", "sampled", "replayed", "size", "replayable", "evicted")
    assert [numbers[name] for name in names] == [24, 24, 12, 0, 24, 0]


def test_rows_that_come_again_are_not_counted_as_sampled_again() -> None:
    replay = make(replay_proportion=0.5)
    for number in (1, 2, 3):
        replay.insert(unroll(number))
    counted = []
    for _ in range(2):
        replay.sample_columns(4)
        counted.append(replay.rows_in(4))
    assert counted == [12, 6]


def test_the_lag_of_the_queue_is_bounded_that_of_the_ring_only_by_age() -> None:
    rule = {"max_version_lag": 2}
    age = {"max_versions": 5, "half_life_versions": 0.0}
    replay = make(evict_rule=rule, replay_proportion=0.5, age=age)
    for number in (1, 2, 3):
        replay.insert(unroll(number, version=0))
    replay.sample(4)
    replay.newest_version = 5
    assert not replay.can_sample(4)  # the third has grown too old in the queue
    replay.insert(unroll(4, version=5))
    batch = replay.aggregate_batch(replay.sample(4))
    assert batch["version"][:, 2:].max() == 0
    replay.insert(unroll(5, version=6))
    # Now version 0 is too old to be replayed, and 5, which is not, is only one unroll.
    assert replay.can_sample(4)
    replay.insert(unroll(6, version=11))
    assert replay.newest_version == 11
    assert not replay.can_sample(4)
    replay.insert(unroll(7, version=11))
    assert replay.can_sample(4)
    batch = replay.aggregate_batch(replay.sample(4))
    assert numbers_of(batch) == [6, 7]
    assert not batch["replayed"].any()


def test_bytes_bound_the_queue_and_the_ring() -> None:
    size = unroll().size_bytes + 8 * LINK_BYTES
    replay = make(replay_proportion=0.5, replay_capacity=36, max_bytes=5 * size + 1)
    number = most = 0
    for _ in range(10):
        while replay.can_insert():
            number += 1
            replay.insert(unroll(number))
        replay.sample(4)
        most = max(most, int(replay.statistics()["size_bytes"]))
    assert most == 5 * size
    assert replay.statistics()["replayable"] == 3 * 6
    with pytest.raises(ConfigError, match=r"max_bytes leaves .* bytes to a shard, that is 1 "):
        make(max_bytes=2 * size - 1).insert(unroll())


def test_before_a_start_the_bytes_of_the_specs_are_enough_to_refuse() -> None:
    row_bytes = unroll().size_bytes // 8
    size = 8 * (row_bytes + LINK_BYTES)
    make(max_bytes=2 * size).check_start(row_bytes + LINK_BYTES)
    with pytest.raises(ConfigError, match="sampling would never start; raise max_bytes"):
        make(max_bytes=2 * size - 1).check_start(row_bytes + LINK_BYTES)
    with pytest.raises(ConfigError, match=rf"answer of 16 rows x {row_bytes} bytes of a row"):
        make(max_message_bytes=16 * row_bytes - 1).check_start(row_bytes + LINK_BYTES)


def test_with_less_room_it_waits_until_there_is_some() -> None:
    saved, smaller = make(capacity=48), make(capacity=12)
    for number in range(1, 6):
        saved.insert(unroll(number))
    smaller.restore(saved.state())
    assert smaller.statistics()["size"] == 5 * 6
    taken: list[int] = []
    while smaller.can_sample(2):
        assert not smaller.can_insert() or len(taken) > 3
        taken += numbers_of(smaller.aggregate_batch(smaller.sample(2)))
    assert taken == [1, 2, 3, 4, 5]
    empty = make()
    empty.restore(make().state())
    assert empty.statistics()["size_bytes"] == 0


def test_unrolls_of_another_length_are_left_out() -> None:
    """A run that is resumed may have another session_config."""
    saved = make()
    saved.insert(unroll(version=7))
    session = {"sender": {"flush_iteration": STEPS + 1}}
    longer = FIFOReplay(**configs(session=session, capacity=24, batch_size=4))
    longer.restore(saved.state())
    assert set(longer.statistics().values()) == {0}
    assert longer.newest_version == 7


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("insert"), st.integers(0, 5)),
            st.tuples(st.just("insert"), st.integers(0, 2)),
            st.tuples(st.just("sample"), st.integers(1, 3)),
            st.tuples(st.just("learn"), st.integers(1, 2)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=40,
    ),
    st.sampled_from(["block", "drop_oldest"]),
    st.booleans(),
)
def test_every_row_is_kept_sampled_or_counted(
    operations: list[tuple[str, int]], when_full: str, mixed: bool
) -> None:
    """Against a list, and a list of the newest five that were learned from."""
    rule = {"max_version_lag": 3}
    mix: dict[str, Any] = {"replay_proportion": 0.5, "replay_capacity": 30} if mixed else {}
    replay = make(when_full=when_full, evict_rule=rule, **mix)
    twin: list[tuple[int, int]] = []
    ring: list[int] = []
    replayed = 0
    number = version = 0
    for what, value in operations:
        if what == "insert" and replay.can_insert():
            number += 1
            if len(twin) == 4:
                twin.pop(0)
            acted_with = max(0, version - value)
            replay.insert(unroll(number, version=acted_with))
            twin.append((number, acted_with))
        elif what == "learn":
            version += value
            replay.newest_version = version
        elif what == "restart":
            state = copy.deepcopy(replay.state())
            replay, replayed = make(when_full=when_full, evict_rule=rule, **mix), 0
            replay.restore(state)
        elif what == "sample":
            twin = [(n, v) for n, v in twin if v >= version - 3]
            again = value // 2 if mixed and len(ring) >= value // 2 else 0
            fresh = value - again
            assert replay.can_sample(2 * value) == (len(twin) >= fresh)
            if len(twin) >= fresh:
                batch = replay.aggregate_batch(replay.sample(2 * value))
                flags = batch["replayed"]
                assert int(flags.sum()) == 2 * again
                there = {name: batch[name][:, ~flags] for name in ("extras/id", "version")}
                assert numbers_of(there) == [n for n, _ in twin[:fresh]]
                assert there["version"].min() >= version - 3
                assert set(numbers_of({"extras/id": batch["extras/id"][:, flags]})) <= set(ring)
                ring = [*ring, *(n for n, _ in twin[:fresh])][-5:]
                replayed += 6 * again
                del twin[:fresh]
        numbers = replay.statistics()
        assert numbers["size"] == 3 * len(replay.selector) <= 24
        most = 9 if mixed else 4
        assert numbers["size_bytes"] <= most * (unroll().size_bytes + 8 * LINK_BYTES)
        assert numbers["inserted"] == 6 * number
        assert numbers["replayed"] == replayed
        assert numbers["replayable"] == (6 * len(ring) if mixed else 0)
        assert numbers["inserted"] == numbers["size"] + numbers["sampled"] + numbers["evicted"]


def stacked(frames: int) -> FIFOReplay:
    made = configs(session={"sender": {"flush_iteration": STEPS}}, capacity=24, batch_size=4)
    made["env_config"].frame_stack = frames
    return FIFOReplay(**made)


def test_an_unroll_of_stacks_begins_with_the_frames_before_it() -> None:
    chunk = unroll()
    chunk.lead_in = {name: chunk.columns[name][:2] + 7 for name in OBSERVED}
    replay = stacked(3)
    replay.insert(chunk)
    assert replay.statistics()["size"] == chunk.size == 2 * STEPS  # lead-in does not count
    sent = replay.sample_columns(2)
    for name in OBSERVED:
        frames = np.concatenate([chunk.lead_in[name], chunk.columns[name]])
        np.testing.assert_array_equal(sent[name], frames)
    with pytest.raises(DataError, match=r"lead-in frames .*2.* expected 3 of obs/image, obs/posi"):
        stacked(4).insert(chunk)
    with pytest.raises(DataError, match=r"lead-in frames .*2.* expected 0"):
        stacked(0).insert(chunk)
    with pytest.raises(DataError, match="lead-in frames none, expected 2"):
        replay.insert(unroll())


def test_undelivered_unrolls_are_the_next_ones_again() -> None:
    replay = make(replay_proportion=0.5, replay_capacity=24)
    for number in (1, 2, 3, 4):
        replay.insert(unroll(number))
    replay.sample(4)
    before = replay.statistics()
    taken = replay.sample(4)
    assert taken.columns["replayed"].tolist() == [False, False, True, True]
    replay.undo_sample()
    assert replay.statistics() == before
    assert replay.rows_in(4) == 0
    batch = replay.aggregate_batch(replay.sample(4))
    assert numbers_of({"extras/id": batch["extras/id"][:, :2]}) == [3]
