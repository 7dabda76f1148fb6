"""Step types and discounts: two columns of experience that encode the end of an episode.

A termination (the task itself ended) has discount 0. A truncation (time limit, horizon, cut)
keeps discount 1, so that the value of its last observation is still bootstrapped. Both columns are
computed once per chunk from the flags that the environment returned.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.errors import DataError


class StepType(enum.IntEnum):
    """Position of a step in its episode; the uint8 column holds these values."""

    FIRST = 0
    MID = 1
    LAST = 2


# Plain numbers: numpy takes five times as long to compare with a member of an enumeration.
FIRST, LAST = int(StepType.FIRST), int(StepType.LAST)
Flags = npt.NDArray[np.bool_]


def step_types(first: Flags, terminated: Flags, truncated: Flags) -> npt.NDArray[np.uint8]:
    """Returns the column of step types, uint8, in the shape of the three bool columns ([T, N]).

    Raises DataError if a row both begins and ends an episode: then the environment does not reset
    at the step after the last.
    """
    last = terminated | truncated
    both = first & last
    if np.count_nonzero(both):
        where = tuple(int(i) for i in np.argwhere(both)[0])
        raise DataError(
            f"step_type: row {where} is both FIRST and LAST: the reset ended an episode"
        )
    # FIRST is MID - 1, LAST is MID + 1: takes a fraction of the time of writing by masks.
    types = last.view(np.uint8) + np.uint8(StepType.MID)
    types -= first.view(np.uint8)
    return types


def discounts(terminated: Flags) -> npt.NDArray[np.float32]:
    """Returns the column of discounts, float32: 0 at a termination, time limit or not, else 1."""
    return (~terminated).astype(np.float32)


def encode_ends(columns: dict[str, npt.NDArray[Any]], first: Flags) -> dict[str, npt.NDArray[Any]]:
    """Returns the columns with step_type and discount in place of the flags of the environment.

    columns: terminated and truncated, bool like `first`, and any others, which stay. `first` and
    errors are those of `step_types`.
    """
    columns = dict(columns)
    terminated, truncated = columns.pop("terminated"), columns.pop("truncated")
    columns["step_type"] = step_types(first, terminated, truncated)
    columns["discount"] = discounts(terminated)
    return columns
