"""Advantages that agents compute from their own chunks: golden numbers, and a naive twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.agent.postprocess import compute_advantages
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from tests.surreal_like.replay.chunks import chunk_of

ADVANTAGES, TARGETS = "extras/advantages", "extras/value_targets"
EPISODE = ("FMMMT", "FMMMU", "FT", "FU", "FMU")


def test_golden_numbers() -> None:
    for last, expected in (("T", [1.75, 1.5, 1.0, 0.0]), ("U", [3.0, 4.0, 6.0, 0.0])):
        values = np.array([[0.0], [0.0], [0.0], [10.0]]) if last == "U" else None
        for use_gae in (False, True):
            chunk = chunk_of(f"FMM{last}", rewards=[1, 1, 1, 1])
            columns = compute_advantages(chunk, values, gamma=0.5, use_gae=use_gae).columns
            assert columns[TARGETS][:, 0].tolist() == expected
            assert columns[TARGETS].dtype == np.float32
    assert ADVANTAGES not in chunk.columns


def test_the_last_values_belong_to_the_end_of_the_unroll() -> None:
    chunk = chunk_of("FMM", "FMM")
    columns = compute_advantages(chunk, last_values=np.array([8.0, 0.0]), gamma=0.5).columns
    assert columns[ADVANTAGES].tolist() == [[3.5, 1.5], [5.0, 1.0], [0.0, 0.0]]
    alone = compute_advantages(chunk_of("F", "F"), gamma=0.5).columns
    assert alone[ADVANTAGES].tolist() == [[0.0, 0.0]]


def naive(chunk: Chunk, values: Any, gamma: float, lambda_: float) -> Any:
    """Advantages, one row after the other, by their definition."""
    steps, rewards, discounts = (chunk.columns[k] for k in ("step_type", "reward", "discount"))
    length, streams = steps.shape
    found = np.zeros((length, streams))
    for n in range(streams):
        for t in range(length - 1):
            weight = 1.0
            for k in range(t, length - 1):
                if steps[k, n] == 2:
                    break
                bootstrap = gamma * discounts[k + 1, n] * values[k + 1, n]
                found[t, n] += weight * (rewards[k + 1, n] + bootstrap - values[k, n])
                weight *= lambda_ * gamma * discounts[k + 1, n]
    return found


@given(
    st.lists(st.sampled_from(EPISODE), min_size=1, max_size=4), st.integers(0, 10), st.booleans()
)
def test_advantages_are_those_of_the_twin(episodes: list[str], seed: int, cut: bool) -> None:
    rng = np.random.default_rng(seed)
    text = "".join(episodes)[: -1 if cut else None]
    chunk = chunk_of(text, rewards=rng.normal(size=len(text)).tolist())
    values = rng.normal(size=(len(text), 1))
    columns = compute_advantages(chunk, values, gamma=0.9, lambda_=0.7).columns
    expected = naive(chunk, values, 0.9, 0.7)
    assert columns[ADVANTAGES] == pytest.approx(expected, abs=1e-5)
    acted = chunk.columns["step_type"] != 2
    acted[-1] = False
    assert columns[TARGETS] == pytest.approx((expected + values) * acted, abs=1e-5)


def test_packed_episodes_equal_separate_ones() -> None:
    whole = compute_advantages(chunk_of("".join(EPISODE)), gamma=0.9).columns[ADVANTAGES]
    parts = [compute_advantages(chunk_of(text), gamma=0.9).columns[ADVANTAGES] for text in EPISODE]
    assert whole == pytest.approx(np.concatenate(parts), abs=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"values": np.zeros((3, 1))}, r"values are \[3, 1\], but the rewards are \[4, 1\]"),
        ({"last_values": np.zeros((1, 1))}, r"last_values are \[1, 1\], .*: expected \[1\]"),
    ],
)
def test_values_of_another_shape_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        compute_advantages(chunk_of("FMMT"), gamma=0.9, **given)
