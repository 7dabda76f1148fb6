"""Columns, links, numbers and eviction of the one ring."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import ConfigError
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import LINK_BYTES, ColumnStorage
from surreal_like.replay.unrolls import BlockStorage
from tests.examples import examples
from tests.surreal_like.replay.chunks import Sender, chunk_of, columns_of, counting
from tests.surreal_like.replay.twin import Twin, predecessor, successor, values_of

# What may happen to one of three senders, with the number of steps of its next chunk.
OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["send"] * 6 + ["tail", "lose", "delay", "restart", "move", "evict"]),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=40,
)


class Traffic:
    """Turns operations into the chunks that arrive, and evictions."""

    def __init__(self, seed: int) -> None:
        random, ids = Random(seed), counting()
        self._senders = [
            Sender(name, streams, random, ids)
            for name, streams in zip("abc", (1, 2, 4), strict=True)
        ]
        self._delayed: list[Chunk] = []

    def arrivals(self, index: int, what: str, steps: int) -> list[Chunk]:
        sender = self._senders[index]
        if what == "restart":
            sender.restart()
        elif what == "move":
            sender.move()
        chunk = sender.cut(steps, tail=what == "tail")
        if what == "lose":
            return []
        if what == "delay":
            self._delayed.append(chunk)
            return []
        delayed, self._delayed = self._delayed, []
        return [chunk, *delayed]


def assert_same(storage: ColumnStorage, twin: Twin) -> None:
    numbers = np.arange(storage.oldest, storage.next_number)
    assert numbers.tolist() == [row.number for row in twin.rows]
    if not len(numbers):
        return
    links = zip(
        predecessor(storage, numbers).tolist(), successor(storage, numbers).tolist(), strict=True
    )
    assert dict(zip(numbers.tolist(), links, strict=True)) == twin.links()
    gathered = values_of(storage, numbers, storage.names)
    for name in storage.names:
        expected = np.array([row.values[name] for row in twin.rows])
        np.testing.assert_array_equal(gathered[name], expected)
        assert gathered[name].dtype == expected.dtype
        np.testing.assert_array_equal(np.concatenate(storage.read(name)), expected)


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), operations=OPERATIONS)
def test_storage_equals_its_twin(seed: int, operations: list[tuple[int, str, int]]) -> None:
    storage, twin, traffic = ColumnStorage(50), Twin(50), Traffic(seed)
    for index, what, steps in operations:
        if what == "evict":
            storage.evict(storage.oldest + 3 * steps)
            twin.evict(storage.oldest)
        for chunk in traffic.arrivals(index, what, steps):
            numbers = storage.insert(chunk)
            twin.insert(chunk)
            assert numbers.shape == chunk.shape
            np.testing.assert_array_equal(
                values_of(storage, numbers, ["action"])["action"], chunk.columns["action"]
            )
        assert_same(storage, twin)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), operations=OPERATIONS, capacity=st.sampled_from([30, 50, 64]))
def test_restored_storage_goes_on_as_the_saved_one(
    seed: int, operations: list[tuple[int, str, int]], capacity: int
) -> None:
    saved, traffic = ColumnStorage(50), Traffic(seed)
    for index, what, steps in operations:
        for chunk in traffic.arrivals(index, what, steps):
            saved.insert(chunk)
    restored = ColumnStorage(capacity)
    restored.restore(copy.deepcopy(saved.state()))
    assert restored.next_number == saved.next_number
    assert restored.oldest == max(saved.oldest, saved.next_number - capacity)
    for index, what, steps in [*operations[:5], (2, "send", 6), (2, "send", 6)]:
        for chunk in traffic.arrivals(index, what, steps):
            saved.insert(chunk)
            restored.insert(chunk)
    saved.evict(restored.oldest)
    restored.evict(saved.oldest)
    numbers = np.arange(saved.oldest, saved.next_number)
    for name, column in values_of(saved, numbers, saved.names).items():
        np.testing.assert_array_equal(values_of(restored, numbers, [name])[name], column)
    np.testing.assert_array_equal(successor(restored, numbers), successor(saved, numbers))
    np.testing.assert_array_equal(predecessor(restored, numbers), predecessor(saved, numbers))


def test_numbers_are_never_used_again() -> None:
    storage = ColumnStorage(10)
    seen: list[int] = []
    for sequence in range(1, 9):
        seen += storage.insert(chunk_of("FMM", "FTF", sequence=sequence)).ravel().tolist()
    assert seen == list(range(48))
    assert (storage.oldest, storage.next_number, len(storage)) == (38, 48, 10)
    np.testing.assert_array_equal(
        storage.exists(np.array([-1, 0, 37, 38, 47, 48])), [False, False, False, True, True, False]
    )


def test_links_within_a_chunk_and_to_the_chunk_before() -> None:
    storage = ColumnStorage(100)
    storage.insert(chunk_of("FMM", "FTF"))
    numbers = storage.insert(chunk_of("MMT", "MMU", sequence=2))
    np.testing.assert_array_equal(numbers, [[6, 7], [8, 9], [10, 11]])
    np.testing.assert_array_equal(successor(storage, np.array([0, 4, 5, 6, 11])), [2, 6, 7, 8, -1])
    np.testing.assert_array_equal(predecessor(storage, np.array([0, 6, 7, 9])), [-1, 4, 5, 7])


@pytest.mark.parametrize(
    ("second", "linked"),
    [
        ({"sequence": 2}, True),
        ({"sequence": 3}, False),  # chunk 2 is missing
        ({"sequence": 2, "streams": [1]}, False),  # a new stream after a cut
        ({"sequence": 2, "incarnation": 2}, False),
        ({"sequence": 2, "sender": "agent-1"}, False),
    ],
)
def test_a_cut_has_no_link(second: dict[str, Any], linked: bool) -> None:
    storage = ColumnStorage(100)
    storage.insert(chunk_of("FMM"))
    storage.insert(chunk_of("MMT", **second))
    assert successor(storage, np.array([2])).item() == (3 if linked else -1)
    assert predecessor(storage, np.array([3])).item() == (2 if linked else -1)


def test_nothing_follows_a_row_without_an_action() -> None:
    storage = ColumnStorage(100)
    storage.insert(chunk_of("FMM", tail=True))
    storage.insert(chunk_of("MMT", sequence=2))
    np.testing.assert_array_equal(successor(storage, np.array([0, 1, 2])), [1, 2, -1])


def test_a_late_chunk_stays_alone_and_cuts_nothing() -> None:
    storage = ColumnStorage(100)
    storage.insert(chunk_of("FM", sequence=2))
    storage.insert(chunk_of("FM", sequence=1))
    storage.insert(chunk_of("MM", sequence=3))
    np.testing.assert_array_equal(successor(storage, np.arange(6)), [1, 4, 3, -1, 5, -1])


def test_streams_need_not_come_in_the_same_order() -> None:
    storage = ColumnStorage(100)
    storage.insert(chunk_of("F", "F", "F", streams=[4, 7, 9]))
    storage.insert(chunk_of("M", "M", sequence=2, streams=[9, 4]))
    np.testing.assert_array_equal(successor(storage, np.array([0, 1, 2])), [4, -1, 3])


def test_eviction_moves_the_old_end_only() -> None:
    storage = ColumnStorage(10)
    storage.insert(chunk_of("FMMMM"))
    assert storage.evict(2) == 2
    assert storage.evict(1) == 0
    assert storage.oldest == 2
    assert predecessor(storage, np.array([2])).item() == -1
    assert storage.evict(99) == 3
    assert (len(storage), storage.oldest) == (0, 5)
    storage.insert(chunk_of("MM", sequence=2))  # the row before it is gone
    assert predecessor(storage, np.array([5])).item() == -1


def test_a_row_that_is_not_here_is_refused() -> None:
    storage = ColumnStorage(10)
    storage.insert(chunk_of("FMMMM"))
    storage.evict(2)
    for number in (1, 5):
        with pytest.raises(DataError, match=f"row {number} is not in this replay, .* 2 to 4"):
            values_of(storage, np.array([3, number]), ["action"])


def broken(name: str, column: Any) -> Chunk:
    return replace(chunk_of("FM", "FM"), columns=columns_of(["FM", "FM"]) | {name: column})


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (
            broken("action", np.zeros((2, 2), np.float32)),
            r"'action' is float32 \[2, 2\].*keeps int64",
        ),
        (
            broken("obs/position", np.zeros((2, 2, 3), np.float32)),
            r"'obs/position' is .*\[2, 2, 3\]",
        ),
        (
            broken("extras/more", np.zeros((2, 2))),
            "'extras/more' is unknown here; this replay keeps",
        ),
        (broken("version", np.zeros((3, 2), np.int64)), r"'version' is int64 \[3, 2\]"),
        (broken("step_type", np.zeros((2, 3), np.uint8)), "N = 2, one for each stream"),
        (broken("step_type", np.zeros((0, 2), np.uint8)), "expected .T, N. with T > 0"),
        (replace(chunk_of("FM", "FM"), streams=[3, 3]), r"a stream stands twice in \[3, 3\]"),
        (chunk_of("F" + 10 * "M", "F" + 10 * "M"), "11 x 2 rows do not fit .* 20 rows"),
    ],
)
def test_a_chunk_that_does_not_fit_changes_nothing(chunk: Chunk, said: str) -> None:
    storage = ColumnStorage(20)
    storage.insert(chunk_of("FM", "FM"))
    before = copy.deepcopy(storage.state())
    with pytest.raises(DataError, match=f"chunk from agent-0: .*{said}"):
        storage.insert(replace(chunk, sequence=2))
    np.testing.assert_equal(storage.state(), before)


def test_a_missing_column_is_named() -> None:
    columns = columns_of(["FM"])
    storage = ColumnStorage(20)
    for name in ("reward", "version"):
        rest = {key: column for key, column in columns.items() if key != name}
        with pytest.raises(DataError, match=f"column '{name}' is missing"):
            storage.insert(replace(chunk_of("FM"), columns=rest))
    storage.insert(chunk_of("FM"))
    del columns["action"]
    with pytest.raises(
        DataError, match="column 'action' is missing; this replay keeps step_type, "
    ):
        storage.insert(replace(chunk_of("MM", sequence=2), columns=columns))


def test_max_bytes_lowers_the_capacity() -> None:
    row_bytes = 1 + 4 + 4 + 8 + 4 + 8 + 8 + 8 + LINK_BYTES
    storage = ColumnStorage(1000, max_bytes=12 * row_bytes + 5)
    for sequence in range(1, 9):
        storage.insert(chunk_of("FMMMT", sequence=sequence))
    assert (storage.capacity, len(storage)) == (12, 12)
    assert storage.size_bytes == 12 * row_bytes
    with pytest.raises(ConfigError, match=f"max_bytes is 30, .* takes {row_bytes} bytes"):
        ColumnStorage(1000, max_bytes=30).insert(chunk_of("FM"))
    with pytest.raises(ConfigError, match="capacity is 0"):
        ColumnStorage(0)


def test_numbers_may_outgrow_32_bits() -> None:
    storage = ColumnStorage(50)
    far = 3 * 2**32 - 3  # cut to 32 bits, a distance to row -1 would lead to the row far + 2
    storage.restore(storage.state() | {"oldest": far, "next_number": far})
    storage.insert(chunk_of("FMM", "FMM"))
    storage.insert(chunk_of("MM", "MM", sequence=2, streams=[1, 2]))
    numbers = np.arange(far, far + 10)
    np.testing.assert_array_equal(
        predecessor(storage, numbers) - far, [*2 * [-1 - far], 0, 1, 2, 3, 5, -1 - far, 6, 7]
    )
    np.testing.assert_array_equal(values_of(storage, numbers[:3], ["action"])["action"], [0, 1, 2])


def test_senders_without_rows_are_forgotten() -> None:
    storage = ColumnStorage(8)
    for index in range(100):
        storage.insert(chunk_of("FMM", sender=f"agent-{index}"))
    assert len(storage.state()["streams"]) <= 6


def unroll_of(sequence: int) -> Chunk:
    """An unroll with the two frames before it, in 12 rows."""
    chunk = chunk_of("FMMM", "MTFM", sequence=sequence, first_id=8 * sequence)
    chunk.overlap = 1
    observed = ("obs/image", "obs/position")
    chunk.lead_in = {name: chunk.columns[name][:2] + 100 for name in observed}
    return chunk


def test_an_unroll_has_its_lead_in_before_it() -> None:
    storage = BlockStorage(12, 4, needed=lambda: {4})
    for sequence in (1, 2):
        numbers = storage.insert(unroll_of(sequence))
    assert numbers.tolist() == [[16, 17], [18, 19], [20, 21], [22, 23]]  # after 4 rows of lead-in
    frames = values_of(storage, np.arange(12, 24), ["obs/position"])
    np.testing.assert_array_equal(frames["obs/position"][:4, 0], [116, 117, 118, 119])
    np.testing.assert_array_equal(frames["obs/position"][4:, 0], np.arange(16, 24))


def test_blocks_of_unrolls_that_are_not_needed_are_used_again() -> None:
    needed: set[int] = set()
    storage = BlockStorage(12, 4, most=lambda: 36, needed=lambda: needed)
    firsts: list[int] = []
    for sequence in range(1, 5):
        firsts.append(int(storage.insert(unroll_of(sequence))[0, 0]))
        needed.add(firsts[-1])
    assert firsts == [4, 16, 28, 40]
    assert storage.capacity == 72  # 36 rows are no bound for unrolls that are needed
    needed.remove(16)
    last = [int(storage.insert(unroll_of(sequence))[0, 0]) for sequence in (5, 6, 7)]
    assert sorted(last) == [16, 52, 64]
    for sequence, first in ((1, 4), (3, 28), (4, 40)):
        ids = values_of(storage, np.arange(first, first + 8), ["extras/id"])["extras/id"]
        np.testing.assert_array_equal(ids, 8 * sequence + np.arange(8))
