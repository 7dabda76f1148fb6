"""n-step transitions: which rows start one, and what it holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_like.data.batch import make_batch
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.select.selector import UniformSelector
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.view.n_step import NStepView
from surreal_like.transform.reward import RewardTransform
from tests.examples import examples
from tests.surreal_like.replay.chunks import EPISODES, chunk_of
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Twin, transition


class Table:
    """A storage with one view and the rows that it says are sampleable."""

    def __init__(
        self, n: int, gamma: float = 0.9, capacity: int = 1000, frames: int = 1, **transform: Any
    ) -> None:
        self.storage = ColumnStorage(capacity)
        self.frames = frames
        self.view = NStepView(n, gamma, transform=RewardTransform(**transform), frame_stack=frames)
        self.selector = UniformSelector(capacity)

    def insert(self, *chunks: Chunk) -> list[int]:
        """The rows that have become sampleable."""
        before = self.ready()
        for chunk in chunks:
            losing = self.view.find_losing(self.storage, self.storage.oldest_after(chunk))
            numbers = self.storage.insert(chunk)
            self.clear(losing)
            fresh, earlier = self.view.ready(self.storage, numbers, chunk.columns["step_type"])
            self.selector.mark(int(numbers[0, 0]), fresh)
            self.selector.mark_earlier(earlier)
        return sorted(set(self.ready()) - set(before))

    def evict(self, oldest: int) -> None:
        losing = self.view.find_losing(self.storage, oldest)
        self.storage.evict(oldest)
        self.clear(losing)

    def clear(self, losing: Any) -> None:
        self.selector.evict(self.storage.oldest)
        self.selector.unmark(losing)

    def ready(self) -> list[int]:
        numbers = np.arange(self.storage.oldest, self.storage.next_number)
        return [int(number) for number in numbers[self.selector.is_ready(numbers)]]

    def gather(self, numbers: list[int]) -> dict[str, Any]:
        return self.view.gather(self.storage, np.array(numbers, np.int64))


def fold(transform: RewardTransform) -> Any:
    return lambda reward: float(transform(np.array([reward], np.float32))[0])


def assert_same(table: Table, twin: Twin, gamma: float, transform: RewardTransform) -> None:
    ready = twin.ready(table.view.n, table.frames)
    assert table.ready() == sorted(ready)
    assert len(table.selector) == len(ready)
    np.testing.assert_array_equal(
        np.flatnonzero(table.view.ready_rows(table.storage)) + table.storage.oldest, sorted(ready)
    )
    if not ready:
        return
    batch = make_batch(table.gather(list(ready)))
    rows = [
        transition(row, table.view.n, gamma, fold(transform), table.frames)
        for row in ready.values()
    ]
    for name in ("rewards", "discounts", "dones", "version", "actions"):
        np.testing.assert_allclose(batch[name], [row[name] for row in rows], rtol=1e-5, atol=1e-6)
    for name in ("obs", "obs_next"):
        for key in ("image", "position"):
            expected = np.array([row[name][key] for row in rows])
            np.testing.assert_array_equal(batch[name][key], expected)
    np.testing.assert_array_equal(batch.extras["id"], [row["extras"]["id"] for row in rows])


# Steps of a transition, frames of an observation.
FRAMES = [(1, 2), (1, 4), (3, 4), (2, 7)]


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32),
    operations=OPERATIONS,
    transform=st.sampled_from([{}, {"clip": 1.5}, {"clip": 1.5, "scale": 2.0}]),
)
def test_view_equals_its_twin(
    seed: int, operations: list[tuple[int, str, int]], transform: dict[str, Any]
) -> None:
    twin, traffic = Twin(50), Traffic(seed)
    tables = [Table(n, 0.9, 50, **transform) for n in range(1, 6)]
    tables += [Table(n, 0.9, 50, frames, **transform) for n, frames in FRAMES]
    for index, what, steps in operations:
        if what == "evict":
            oldest = tables[0].storage.oldest + 3 * steps
            for table in tables:
                table.evict(oldest)
            twin.evict(tables[0].storage.oldest)
        for chunk in traffic.arrivals(index, what, steps):
            twin.insert(chunk)
            for table in tables:
                table.insert(chunk)
        for table in tables:
            assert_same(table, twin, 0.9, RewardTransform(**transform))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("split", [1, 2, 3, 100])
@pytest.mark.parametrize("case", EPISODES)
def test_every_episode_yields_each_of_its_transitions_once(case: str, split: int, n: int) -> None:
    text = EPISODES[case]
    pieces = [text[i : i + split] for i in range(0, len(text), split)]
    table = Table(n)
    chunks = [chunk_of(piece, sequence=i) for i, piece in enumerate(pieces, start=1)]
    found = table.insert(*chunks)
    ends = [i for i, letter in enumerate(text) if letter in "TU"]
    complete = [
        i
        for i, letter in enumerate(text)
        if letter not in "TU" and (i + n < len(text) or any(end > i for end in ends))
    ]
    assert found == complete
    batch = table.gather(found)
    end_of = [min([end for end in ends if end > i] + [i + n]) for i in found]
    np.testing.assert_array_equal(batch["dones"], [text[end] == "T" for end in end_of])


# Six steps of reward 1, n = 3, gamma = 0.5: worked out by hand.
@pytest.mark.parametrize(
    ("text", "rewards", "discounts", "ends"),
    [
        (
            "FMMMMMT",
            [1.75, 1.75, 1.75, 1.75, 1.5, 1],
            [0.125, 0.125, 0.125, 0, 0, 0],
            [3, 4, 5, 6, 6, 6],
        ),
        (
            "FMMMMMU",
            [1.75, 1.75, 1.75, 1.75, 1.5, 1],
            [0.125, 0.125, 0.125, 0.125, 0.25, 0.5],
            [3, 4, 5, 6, 6, 6],
        ),
        ("FMMMMM", [1.75, 1.75, 1.75], [0.125, 0.125, 0.125], [3, 4, 5]),
        ("FTFUFM", [1, 1], [0, 0.5], [1, 3]),
    ],
)
def test_golden_returns(
    text: str, rewards: list[float], discounts: list[float], ends: list[int]
) -> None:
    table = Table(3, gamma=0.5)
    batch = table.gather(table.insert(chunk_of(text)))
    np.testing.assert_array_equal(batch["rewards"], np.array(rewards, np.float32))
    np.testing.assert_array_equal(batch["discounts"], np.array(discounts, np.float32))
    np.testing.assert_array_equal(batch["obs_next/position"][:, 0], ends)


def test_rewards_are_clipped_before_they_are_summed() -> None:
    table = Table(3, gamma=0.5, clip=1.0)
    batch = table.gather(table.insert(chunk_of("FMMM", rewards=[0, 5, 5, 5])))
    np.testing.assert_array_equal(batch["rewards"], [1.75])


def test_dtypes_and_names() -> None:
    table = Table(2)
    batch = table.gather(table.insert(chunk_of("FMMT")))
    assert {name: column.dtype.name for name, column in batch.items()} == {
        "obs/image": "uint8",
        "obs/position": "float32",
        "obs_next/image": "uint8",
        "obs_next/position": "float32",
        "actions": "int64",
        "rewards": "float32",
        "discounts": "float32",
        "dones": "float32",
        "version": "int64",
        "extras/id": "float64",
    }


@pytest.mark.parametrize("n", [1, 3])
def test_a_row_is_ready_at_the_insert_that_completes_it(n: int) -> None:
    table = Table(n)
    fresh = [table.insert(chunk_of(letter, sequence=i + 1)) for i, letter in enumerate("FMMMTFTFM")]
    if n == 1:
        assert fresh == [[], [0], [1], [2], [3], [], [5], [], [7]]
    else:
        assert fresh == [[], [], [], [0], [1, 2, 3], [], [5], [], []]


def test_rows_before_a_cut_never_become_ready() -> None:
    table = Table(3)
    assert table.insert(chunk_of("FMMMM")) == [0, 1]
    assert table.insert(chunk_of("MMMMMT", sequence=3)) == [5, 6, 7, 8, 9]
    assert table.ready() == [0, 1, 5, 6, 7, 8, 9]


def test_the_last_observation_completes_the_last_transition() -> None:
    table = Table(1)
    assert table.insert(chunk_of("FMM", tail=True)) == [0, 1]
    assert table.insert(chunk_of("M", sequence=2)) == []


def test_the_environment_discounts_inside_an_episode_too() -> None:
    chunk = chunk_of("FMMM", rewards=[0, 1, 2, 4])
    chunk.columns["discount"][1:3, 0] = [0.5, 0.25]
    table = Table(3, gamma=0.8)
    batch = table.gather(table.insert(chunk))
    assert math.isclose(batch["rewards"].item(), 1 + 0.8 * 0.5 * 2 + 0.64 * 0.125 * 4, rel_tol=1e-6)
    assert math.isclose(batch["discounts"].item(), 0.512 * 0.125, rel_tol=1e-6)


@pytest.mark.parametrize(("oldest", "needed"), [(0, 2), (2, 2), (4, 8), (6, 8), (8, 8)])
def test_no_row_is_needed_for_a_sample_that_its_stack_rules_out(oldest: int, needed: int) -> None:
    """Rows 6 and 7 wait for successors, and their stacks go back to rows 2 and 3."""
    table = Table(1, frames=3)
    table.insert(chunk_of("FMMM", "FMMM"))
    table.evict(oldest)
    assert table.view.needed_from(table.storage) == needed
