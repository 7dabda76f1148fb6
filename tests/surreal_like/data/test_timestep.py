import numpy as np
import pytest

from surreal_like.data.spec import ArraySpec
from surreal_like.data.timestep import (
    StepType,
    TimeStep,
    check_step_types,
    discounts,
    restart,
    step_types,
    termination,
    transition,
    truncation,
)
from surreal_like.errors import DataError

OBS = np.array([1.0, 2.0], np.float32)
ACTION = np.array(1)

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


@pytest.mark.parametrize("wrong", [-1, 3, 255])
def test_any_other_step_type_is_a_value_error(wrong: int) -> None:
    with pytest.raises(ValueError, match=str(wrong)):
        StepType(wrong)
    with pytest.raises(ValueError, match=str(wrong)):
        TimeStep(wrong, 0.0, 1.0, OBS, ACTION)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=str(wrong)):
        check_step_types(np.array([[0, 1], [2, wrong]]))


def test_the_known_step_types_pass() -> None:
    check_step_types(np.array([[0, 1], [2, 2]], np.uint8))


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


def test_constructors_say_the_case() -> None:
    step = restart(OBS, ArraySpec("float32", (3,)), env_id=4)
    assert (step.step_type, step.reward, step.discount, step.env_id) == (StepType.FIRST, 0, 1, 4)
    assert step.prev_action.tolist() == [0, 0, 0]
    assert (step.first(), step.mid(), step.last()) == (True, False, False)
    step = transition(2.0, OBS, ACTION)
    assert (step.step_type, step.reward, step.discount) == (StepType.MID, 2, 1)
    assert (step.first(), step.mid(), step.last()) == (False, True, False)
    step = termination(3.0, OBS, ACTION)
    assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 3, 0)
    step = truncation(4.0, OBS, ACTION)
    assert (step.step_type, step.reward, step.discount) == (StepType.LAST, 4, 1)
    assert (step.first(), step.mid(), step.last()) == (False, False, True)
    assert step.observation is OBS
    assert step.prev_action is ACTION


@pytest.mark.parametrize(
    ("kind", "reward", "discount"), [(0, 0.0, 0.0), (1, 0.0, 0.5), (2, 0.0, 0.9), (0, 1.0, 1.0)]
)
def test_fields_that_contradict_each_other_are_refused(
    kind: int, reward: float, discount: float
) -> None:
    with pytest.raises(ValueError, match=r"at (FIRST|MID|LAST)"):
        TimeStep(StepType(kind), reward, discount, OBS, ACTION)
