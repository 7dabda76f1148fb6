"""The frames before an unroll, against a list of all frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.data.timestep import StepType
from surreal_like.experience.row_buffer import LeadIn
from tests.surreal_like.replay.chunks import columns_of


def naive(text: str, row: int, frames: int) -> list[int]:
    """Which rows are seen before a row: back to the first of its episode, which is repeated."""
    seen: list[int] = []
    at = row
    for _ in range(frames):
        at = at if text[at] == "F" else at - 1
        seen.insert(0, at)
    return seen


def unrolls(texts: list[str], steps: int) -> list[dict[str, Any]]:
    """Columns of unrolls that overlap by one row; `extras/id` numbers the rows of all."""
    columns = columns_of(texts)
    rows = len(texts[0])
    return [
        {name: column[t : t + steps + 1] for name, column in columns.items()}
        for t in range(0, rows - steps, steps)
    ]


def take(lead_in: LeadIn, columns: dict[str, Any], overlap: int = 0) -> dict[str, Any]:
    first = columns["step_type"] == StepType.FIRST
    return lead_in.take(columns, first, len(first) - overlap)


EPISODES = st.lists(st.sampled_from(["FMMMMT", "FT", "FMU", "FMMMMMMMM"]), min_size=12, max_size=12)


@given(episodes=st.tuples(EPISODES, EPISODES), steps=st.integers(1, 6), frames=st.integers(1, 5))
def test_it_is_what_came_before(
    episodes: tuple[list[str], list[str]], steps: int, frames: int
) -> None:
    texts = ["".join(each)[:24] for each in episodes]
    lead_in = LeadIn(frames, len(texts))
    everything = columns_of(texts)
    for number, columns in enumerate(unrolls(texts, steps)):
        found = take(lead_in, columns, 1)
        assert found.keys() == {"obs/image", "obs/position"}
        for name, lead in found.items():
            assert lead.dtype == columns[name].dtype
            for stream, text in enumerate(texts):
                rows = naive(text, number * steps, frames)
                np.testing.assert_array_equal(lead[:, stream], everything[name][rows, stream])


def test_what_was_given_is_not_written_to_later() -> None:
    lead_in, kept = LeadIn(2, 1), []
    for columns in unrolls(["FMMTFMMMMMMM"], 2):
        for name, lead in take(lead_in, columns, 1).items():
            kept.append((lead, lead.copy(), columns[name], columns[name].copy()))
    for lead, then, column, before in kept:
        np.testing.assert_array_equal(lead, then)
        np.testing.assert_array_equal(column, before)


def test_a_chunk_without_overlap_is_followed_by_the_row_after_it() -> None:
    lead_in, everything = LeadIn(3, 1), columns_of(["FMMMMM"])
    parts = [{name: column[i : i + 2] for name, column in everything.items()} for i in (0, 2, 4)]
    found = [take(lead_in, part)["obs/position"][:, 0, 0].tolist() for part in parts]
    assert found == [[0, 0, 0], [0, 0, 1], [1, 2, 3]]


@pytest.mark.parametrize("frames", [0])
def test_without_stacks_there_is_none(frames: int) -> None:
    assert take(LeadIn(frames, 1), columns_of(["FMM"])) == {}
