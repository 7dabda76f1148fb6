"""Turns in proportion to weights."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.replay.turns import Turns


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any))
def test_each_has_its_share_whenever_one_looks(weights: list[int]) -> None:
    turns, taken, total = Turns(len(weights)), Counter[int](), sum(weights)
    for turn in range(1, 60):
        chosen = turns.choose(weights)
        assert chosen is not None
        taken[chosen] += 1
        for index, weight in enumerate(weights):
            assert abs(taken[index] - turn * weight / total) < len(weights)


def test_no_turn_is_owed_to_who_was_away() -> None:
    turns = Turns(2)
    for _ in range(100):
        assert turns.choose([1.0, 0.0]) == 0
    assert Counter(turns.choose([1.0, 1.0]) for _ in range(10)) == {0: 5, 1: 5}


@pytest.mark.parametrize("weights", [[0.0], [0.0, 0.0]])
def test_nobody(weights: list[float]) -> None:
    assert Turns(len(weights)).choose(weights) is None
