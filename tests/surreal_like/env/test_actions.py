from typing import Any

import numpy as np
import pytest

from surreal_like.env.actions import ActionValidator
from surreal_like.errors import DataError

TWO = {"type": "discrete", "dim": [2]}
MANY = {"type": "multi_discrete", "dim": [3, 2]}
ARM = {"type": "continuous", "dim": [2], "low": [-1.0, 0.5], "high": [1.0, 2.0]}


def test_good_actions_come_out_in_their_dtype_as_a_copy() -> None:
    given = np.array([0, 1, 1], np.int32)
    checked = ActionValidator(TWO, (3,))(given)
    assert (checked.dtype, checked.tolist()) == (np.dtype(np.int64), [0, 1, 1])
    wanted = np.array([[0.5, 1.0]], np.float32)
    checked = ActionValidator(ARM, (1,))(wanted)
    checked[:] = 0
    assert wanted.tolist() == [[0.5, 1.0]]
    assert ActionValidator(TWO)(1).tolist() == 1
    assert ActionValidator(MANY)([2, 1]).tolist() == [2, 1]
    assert ActionValidator(ARM)([0, 1]).dtype == np.float32


WRONG = [
    (TWO, (2,), [0, 2], "action: 2 in stream 1, expected 0 to below 2"),
    (TWO, (2,), [-1, 0], "action: -1 in stream 0"),
    (TWO, (2,), [0.0, 1.0], "action: float64 given, expected int64"),
    (TWO, (2,), [True, False], "action: bool given"),
    (TWO, (2,), [[0], [1]], r"action: shape \[2, 1\] given, expected \[2\]"),
    (TWO, (), 5, "action: 5, expected"),
    (MANY, (2,), [[2, 1], [2, 2]], r"action: 2 in stream 1, expected 0 to below \[3 2\]"),
    (ARM, (2,), [[0, 1], [np.nan, 1]], "action: NaN in stream 1, expected a number"),
    (ARM, (), [np.nan, 1], "action: NaN, expected"),
    (ARM, (2,), [["a", "b"]] * 2, "action: <U1 given, expected float32"),
]


@pytest.mark.parametrize(("spec", "leading", "actions", "message"), WRONG)
def test_a_wrong_action_names_value_and_stream(
    spec: Any, leading: Any, actions: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        ActionValidator(spec, leading)(actions)


def test_outside_the_bounds_is_clipped_refused_or_passed() -> None:
    outside = [[3.0, 1.0], [0.0, 0.0]]
    assert ActionValidator(ARM, (2,), outside="clip")(outside).tolist() == [[1.0, 1.0], [0.0, 0.5]]
    assert ActionValidator(ARM, (2,))(outside).tolist() == outside
    refuse = ActionValidator(ARM, (2,), outside="refuse")
    assert refuse([[1.0, 1.0], [0.0, 0.5]]).tolist() == [[1.0, 1.0], [0.0, 0.5]]
    with pytest.raises(DataError, match=r"action: 3\.0 in stream 0, expected a value between"):
        refuse(outside)
    free = {"type": "continuous", "dim": [1]}
    assert ActionValidator(free, outside="clip")([99.0]).tolist() == [99.0]


def test_ignored_streams_get_a_harmless_action() -> None:
    ignored = np.array([False, True])
    assert ActionValidator(TWO, (2,))([1, 77], ignored).tolist() == [1, 0]
    checked = ActionValidator(ARM, (2,), outside="refuse")([[0.0, 1.0], [np.nan, 9]], ignored)
    assert checked.tolist() == [[0.0, 1.0], [0.0, 0.5]]
