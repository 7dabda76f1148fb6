"""WeightedRoundRobin in proportion to weights."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.replay.batch_requests import WeightedRoundRobin


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any), st.integers(1, 3))
def test_each_has_its_share_whenever_one_looks(weights: list[int], in_a_row: int) -> None:
    turns, taken, total = (
        WeightedRoundRobin(len(weights), in_a_row=in_a_row),
        Counter[int](),
        sum(weights),
    )
    for turn in range(1, 60):
        chosen = turns.choose(weights)
        assert chosen is not None
        taken[chosen] += 1
        for index, weight in enumerate(weights):
            assert abs(taken[index] - turn * weight / total) < len(weights) * in_a_row


def test_turns_in_a_row() -> None:
    turns = WeightedRoundRobin(2, in_a_row=3)
    assert [turns.choose([1.0, 1.0]) for _ in range(9)] == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert [turns.choose([1.0, 1.0]) for _ in range(2)] == [1, 1]
    # Who has none any more does not end its row, and a row is not resumed.
    assert [turns.choose(weights) for weights in ([1.0, 0.0], [1.0, 1.0], [1.0, 1.0])] == [0, 0, 0]
    assert turns.choose([0.0, 0.0]) is None


def test_no_turn_is_owed_to_an_agent_that_was_away() -> None:
    turns = WeightedRoundRobin(2)
    for _ in range(100):
        assert turns.choose([1.0, 0.0]) == 0
    assert Counter(turns.choose([1.0, 1.0]) for _ in range(10)) == {0: 5, 1: 5}


@pytest.mark.parametrize("weights", [[0.0], [0.0, 0.0]])
def test_without_a_positive_weight_nothing_is_chosen(weights: list[float]) -> None:
    assert WeightedRoundRobin(len(weights)).choose(weights) is None
