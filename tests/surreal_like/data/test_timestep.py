import numpy as np
import pytest

from surreal_like.data.timestep import (
    StepType,
    discounts,
    step_types,
)
from surreal_like.errors import DataError

# (name, first, terminated, truncated, step type, discount)
CASES = [
    ("first", True, False, False, 0, 1.0),
    ("mid", False, False, False, 1, 1.0),
    ("termination", False, True, False, 2, 0.0),
    ("truncation", False, False, True, 2, 1.0),
    ("termination at the time limit", False, True, True, 2, 0.0),
]


def test_step_types_have_their_numbers() -> None:
    assert [int(kind) for kind in (StepType.FIRST, StepType.MID, StepType.LAST)] == [0, 1, 2]


@pytest.mark.parametrize(("name", "first", "terminated", "truncated", "kind", "discount"), CASES)
def test_columns_of_one_row(
    name: str, first: bool, terminated: bool, truncated: bool, kind: int, discount: float
) -> None:
    flags = [np.array([[flag]]) for flag in (first, terminated, truncated)]
    assert step_types(*flags).tolist() == [[kind]], name
    assert discounts(flags[1]).tolist() == [[discount]], name


def test_columns_of_a_block_have_its_shape_and_their_dtypes() -> None:
    rows = np.array([case[1:4] for case in CASES])  # [5 rows, 3 flags]
    first, terminated, truncated = (np.repeat(rows[:, i : i + 1], 2, axis=1) for i in range(3))
    kinds, factors = step_types(first, terminated, truncated), discounts(terminated)
    assert (kinds.dtype, kinds.shape) == (np.dtype(np.uint8), (5, 2))
    assert (factors.dtype, factors.shape) == (np.dtype(np.float32), (5, 2))
    assert kinds[:, 1].tolist() == [0, 1, 2, 2, 2]
    assert factors[:, 1].tolist() == [1, 1, 0, 1, 0]


@pytest.mark.parametrize("flag", [0, 1])
def test_a_row_that_begins_and_ends_an_episode_is_refused(flag: int) -> None:
    first = np.array([[False, False], [False, True]])
    none = np.zeros((2, 2), np.bool_)
    both = [none, none]
    both[flag] = first
    with pytest.raises(DataError, match=r"step_type: row \(1, 1\)"):
        step_types(first, *both)
