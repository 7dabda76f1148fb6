"""The contracts of a replay, a selector and a view: inherit one and say how yours is made.

```
from tests.contracts.replay import ReplayContract

class TestMyReplay(ReplayContract):
    def make(self, **replay):
        return MyReplay(**configs(**replay))
```
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from session.errors import SurrealError
from session.nest import Array
from surreal_like.data.batch import Columns
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay, to_columns
from surreal_like.replay.select.selector import Selector
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.view.n_step import View
from tests.examples import examples
from tests.surreal_like.replay.chunks import chunk_of


def assert_same(one: Columns, other: Columns) -> None:
    """Fails unless both have the same columns, number for number."""
    assert one.keys() == other.keys()
    for name, column in one.items():
        np.testing.assert_array_equal(column, other[name])


class ReplayContract(ABC):
    """What a server relies on, whatever is kept and however it is chosen.

    Attributes:
        batch_size: samples in a batch; twelve chunks are enough for four batches.
        missing: a column without which a chunk is refused.
    """

    batch_size = 4
    missing = "reward"

    @abstractmethod
    def make(self) -> Replay:
        """Returns an empty replay; two have the same seed."""

    def chunk(self, number: int) -> Chunk:
        """Returns chunk 1, 2, 3, ... of one sender."""
        return chunk_of("FMMMT", "FMMMM", sequence=number, first_id=10 * number)

    def make_filled(self, chunks: int = 12) -> Replay:
        replay = self.make()
        for number in range(1, chunks + 1):
            replay.insert_chunk(self.chunk(number))
        return replay

    def test_an_empty_one_has_nothing_to_give(self) -> None:
        replay = self.make()
        assert replay.can_insert()
        assert not replay.can_sample(self.batch_size)
        with pytest.raises(SurrealError):
            replay.sample(self.batch_size)
        other = self.make()
        other.restore(replay.state())
        other.insert_chunk(self.chunk(1))
        assert other.statistics()["size"] > 0

    def test_it_counts_what_goes_in_and_out(self) -> None:
        replay = self.make_filled()
        before = replay.statistics()
        assert before["inserted"] == before["size"] == sum(self.chunk(n).size for n in range(1, 13))
        assert replay.mass > 0
        assert replay.needed_rows(self.batch_size) <= before["sampleable"]
        assert replay.can_sample(self.batch_size)
        replay.sample_columns(self.batch_size)
        assert replay.statistics()["sampled"] > 0
        assert replay.rows_in(self.batch_size) > 0

    def test_a_batch_is_the_same_after_the_wire(self) -> None:
        here, there = self.make_filled(), self.make_filled()
        (batch,) = there.collate(there.learner_config)(there.sample_columns(self.batch_size), 1)
        assert_same(batch, to_columns(here.aggregate_batch(here.sample(self.batch_size))))

    def test_large_columns_are_gathered_into_the_memory_of_the_learner(self) -> None:
        replay, made = self.make_filled(), []

        def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
            made.append(np.empty(shape, dtype))
            return made[-1]

        replay.empty = empty
        batch = replay.sample_columns(self.batch_size)
        assert made
        assert all(any(each is column for column in batch.values()) for each in made)

    def test_a_restored_one_goes_on_as_the_saved_one(self) -> None:
        saved, restored = self.make_filled(10), self.make_filled(3)  # what it had is forgotten
        saved.sample_columns(self.batch_size)
        restored.restore(copy.deepcopy(saved.state()))
        for number in (11, 12):
            for replay in (saved, restored):
                replay.insert_chunk(self.chunk(number))
        for _ in range(2):
            ours, theirs = (each.sample_columns(self.batch_size) for each in (saved, restored))
            assert_same(ours, theirs)
        assert saved.statistics() == restored.statistics()
        restored.reset()
        assert restored.statistics() == self.make().statistics()

    def test_draws_follow_the_seed(self) -> None:
        batches = []
        for seed in (1, 1):
            replay = self.make_filled()
            replay.sample_columns(self.batch_size)
            replay.reseed(seed)
            batches.append(replay.sample_columns(self.batch_size))
        assert_same(*batches)

    def test_a_chunk_that_does_not_fit_changes_nothing(self) -> None:
        replay, chunk = self.make_filled(), self.chunk(13)
        before = replay.statistics()
        chunk.columns = {name: c for name, c in chunk.columns.items() if name != self.missing}
        with pytest.raises(DataError, match=self.missing):
            replay.insert_chunk(chunk)
        assert replay.statistics() == before
        replay.insert_chunk(self.chunk(13))
        replay.sample_columns(self.batch_size)


class SelectorContract(ABC):
    """A set of sampleable rows, of which only these are drawn."""

    @abstractmethod
    def make(self, capacity: int, seed: int = 0) -> Selector:
        """Returns an empty selector."""

    def test_nothing_to_sample_is_an_error(self) -> None:
        selector = self.make(8)
        with pytest.raises(SurrealError):
            selector.sample(4)
        selector.mark(0, np.ones(8, np.bool_))
        assert len(selector.sample(4).numbers) == 4
        selector.unmark(np.arange(8))
        with pytest.raises(SurrealError):
            selector.sample(4)

    def test_a_restored_one_draws_the_same(self) -> None:
        selector, flags = self.make(50, 3), np.arange(50) % 3 == 0
        selector.mark(0, flags)
        selector.sample(4)
        restored = self.make(50, 4)
        restored.restore(selector.state(), 0, flags)
        assert len(restored) == len(selector)
        for _ in range(3):
            ours, theirs = restored.sample(4), selector.sample(4)
            assert_same({"": ours.numbers, **ours.columns}, {"": theirs.numbers, **theirs.columns})


class RingContract(SelectorContract):
    """Rows are drawn again and again, the oldest are evicted."""

    @settings(max_examples=examples(60), suppress_health_check=[HealthCheck.differing_executors])
    @given(data=st.data())
    def test_its_rows_equal_a_set(self, data: st.DataObject) -> None:
        capacity = data.draw(st.integers(1, 40))
        selector, ready, oldest, end = self.make(capacity), set[int](), 0, 0
        for _ in range(data.draw(st.integers(1, 15))):
            rows = data.draw(st.integers(1, capacity))
            flags = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
            oldest = max(oldest, end + rows - capacity, oldest + data.draw(st.integers(0, 3)))
            oldest = min(oldest, end)
            gone = {number for number in ready if number < oldest}
            assert selector.evict(oldest) == len(gone)
            selector.mark(end, flags)
            ready = ready - gone | {end + i for i in range(rows) if flags[i]}
            end += rows
            lost = [number for number in range(oldest, end) if data.draw(st.booleans())]
            assert selector.unmark(np.array(lost, np.int64)) == len(ready & set(lost))
            ready -= set(lost)
            late = sorted(set(range(oldest, end)) - ready)[:: data.draw(st.integers(1, 5))]
            selector.mark_earlier(np.array(late, np.int64))
            ready |= set(late)
            assert selector.list_rows().tolist() == sorted(ready)
            assert len(selector) == selector.drawable == len(ready)
            if ready:
                assert selector.mass > 0
                assert set(selector.sample(30).numbers.tolist()) <= ready


class ViewContract(ABC):
    """Samples that start at some rows of a storage."""

    @abstractmethod
    def make(self) -> View:
        """Returns a view that has seen no row."""

    def make_storage(self) -> ColumnStorage:
        """Returns a storage that keeps the newest chunks only."""
        return ColumnStorage(60)

    def chunk(self, number: int) -> Chunk:
        """Returns chunk 1, 2, 3, ... of one sender."""
        return chunk_of("FMMMT", "FMMMM", sequence=number, first_id=10 * number)

    def fill(self, view: View, storage: ColumnStorage, chunks: int) -> set[int]:
        """Stores chunks; returns the rows that became sampleable and are still here."""
        ready: set[int] = set()
        for number in range(1, chunks + 1):
            chunk = self.chunk(number)
            view.check(chunk)
            if view.lead:
                oldest = storage.oldest_after(chunk)
                ready -= set(view.find_losing(storage, oldest).tolist())
            numbers = storage.insert(chunk)
            flags, earlier = view.ready(storage, numbers, chunk.columns["step_type"])
            ready |= {*numbers[flags].tolist(), *earlier.tolist()}
        return {row for row in ready if row >= storage.oldest}

    def test_rows_of_a_full_storage_are_those_found_one_by_one(self) -> None:
        view, storage = self.make(), self.make_storage()
        assert view.ready_rows(storage).shape == (0,)
        ready = self.fill(view, storage, 14)
        found = storage.oldest + np.flatnonzero(view.ready_rows(storage))
        assert set(found.tolist()) == ready
        assert ready

    def test_a_restored_view_makes_the_same_samples(self) -> None:
        view, storage = self.make(), self.make_storage()
        ready = np.array(sorted(self.fill(view, storage, 14)))
        again, other = self.make(), self.make_storage()
        other.restore(storage.state())
        again.restore(view.state(), other)
        assert_same(view.gather(storage, ready), again.gather(other, ready))
        assert view.versions(storage, ready).tolist() == again.versions(other, ready).tolist()
        assert view.versions(storage, ready).shape == ready.shape

    def test_a_row_that_is_gone_is_refused(self) -> None:
        view, storage = self.make(), self.make_storage()
        self.fill(view, storage, 14)
        for gone in (storage.next_number, -1):
            with pytest.raises(DataError, match="is not in this replay"):
                view.gather(storage, np.array([gone]))
