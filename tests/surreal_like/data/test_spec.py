from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session import nest
from surreal_like.data.spec import (
    ArraySpec,
    compare,
    parse_action_spec,
    parse_obs_spec,
    plain,
)
from surreal_like.errors import DataError, SpecError

FLAT = {"type": "float32", "dim": [4]}
DISCRETE = {"type": "int64", "dim": [], "num": 500}
NESTED = {"image": {"type": "uint8", "dim": [2, 2, 3]}, "goal": {"0": FLAT, "1": DISCRETE}}
TWO = {"type": "discrete", "dim": [2]}
ARM = {"type": "continuous", "dim": [2], "low": [-1.0, -2.0], "high": [1.0, 2.0]}


def test_each_part_of_an_observation_has_type_and_dim() -> None:
    spec = parse_obs_spec(FLAT)
    assert (spec.type, spec.dim, spec.dtype) == ("float32", (4,), np.dtype(np.float32))
    nested = parse_obs_spec(NESTED)
    assert nested["image"].dim == (2, 2, 3)
    assert isinstance(nested["goal"], tuple)
    assert nested["goal"][1].num == 500
    assert list(nest.flatten(nested, "obs")) == ["obs/image", "obs/goal/0", "obs/goal/1"]


def test_a_tuple_keeps_its_order_beyond_ten_parts() -> None:
    parts = {str(i): {"type": "float32", "dim": [i]} for i in reversed(range(12))}
    spec = parse_obs_spec(parts)
    assert [part.dim[0] for part in spec] == list(range(12))


def test_parts_may_be_called_as_the_keys_of_a_spec() -> None:
    spec = parse_obs_spec({"type": FLAT, "dim": DISCRETE})
    assert (spec["type"].dim, spec["dim"].dim) == ((4,), ())


def test_action_specs_have_type_and_dim() -> None:
    spec = parse_action_spec(TWO)
    assert (spec.type, spec.dim, spec.array.type, spec.array.dim) == ("discrete", (2,), "int64", ())
    assert spec.array.num == 2
    spec = parse_action_spec({"type": "multi_discrete", "dim": [3, 2]})
    assert (spec.array.dim, spec.array.num.tolist()) == ((2,), [3, 2])  # type: ignore[union-attr]
    spec = parse_action_spec(ARM)
    assert (spec.array.type, spec.array.dim) == ("float32", (2,))
    assert spec.array.low is not None
    assert spec.array.low.tolist() == [-1, -2]
    assert parse_action_spec({"type": "continuous", "dim": [3]}).array.high is None


WRONG_OBS = [
    ({}, "env_config.obs_spec is empty"),
    ({"type": "flaot32", "dim": [4]}, "type is 'flaot32'.*float32"),
    ({"type": "float32"}, "dim is None.*a list"),
    ({"type": "float32", "dim": 4}, "dim is 4"),
    ({"type": "float32", "dim": [-1]}, "dim is"),
    ({"type": "float32", "dim": [True]}, "dim is"),
    ({"type": "float32", "dim": [4], "lwo": 1}, "no key 'lwo'.*did you mean low"),
    ({"type": "float32", "dim": [4], "num": 3}, "num is 3"),
    ({"type": "int64", "dim": [], "num": 0}, "num is 0"),
    ({"type": "uint8", "dim": [4], "low": [1, 2]}, r"low is \[1, 2\].*shape \[4\]"),
    ({"image": {"type": "uint8", "dim": "x"}}, "obs_spec.image.dim"),
    ({"image": 3}, "obs_spec.image is 3"),
]


@pytest.mark.parametrize(("spec", "message"), WRONG_OBS)
def test_a_wrong_obs_spec_names_the_place(spec: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_obs_spec(spec)


WRONG_ACTIONS = [
    ({}, "type is None"),
    ({"type": "discreet", "dim": [2]}, "type is 'discreet'"),
    ({"type": "discrete", "dim": []}, "expected the count"),
    ({"type": "discrete", "dim": [2, 3]}, "expected the count"),
    ({"type": "multi_discrete", "dim": [2, 0]}, "expected the count"),
    ({"type": "discrete", "dim": [2], "low": 0}, "no key 'low'"),
    ({"type": "continuous", "dim": [2], "low": "x"}, "low is 'x'"),
]


@pytest.mark.parametrize(("spec", "message"), WRONG_ACTIONS)
def test_a_wrong_action_spec_names_the_place(spec: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"env_config.action_spec.*{message}"):
        parse_action_spec(spec)


def test_good_arrays_pass_with_any_leading_dimensions() -> None:
    spec = parse_obs_spec(FLAT)
    for leading in ((), (3,), (5, 3)):
        spec.validate("obs", spec.zeros(*leading))
    parse_obs_spec(DISCRETE).validate("obs", np.array(499))
    parse_action_spec(ARM).array.validate("action", np.array([[1, -2]], np.float32))


BAD_ARRAYS = [
    (FLAT, np.zeros(4), "obs/x: float64 given, its spec says float32"),
    (FLAT, [0.0], "obs/x: list given"),
    (FLAT, np.zeros((2, 5), np.float32), r"obs/x: shape \[2, 5\] given, its spec says \[..., 4\]"),
    (FLAT, np.array(0, np.float32), r"obs/x: shape \[\] given"),
    (FLAT, np.array([0, 1, np.nan, 1], np.float32), r"obs/x: NaN at \[2\] of \[4\]"),
    (FLAT, np.array([[0, 1, 1, np.inf]], np.float32), r"obs/x: inf at \[0, 3\] of \[1, 4\]"),
    (DISCRETE, np.array([3, 500]), r"obs/x: 500 at \[1\] of \[2\], expected 0 to below 500"),
    (DISCRETE, np.array(-1), "obs/x: -1, expected 0"),
    ({**FLAT, "low": -1}, np.full(4, -2, np.float32), "expected at least"),
    ({**FLAT, "high": 1}, np.full(4, 2, np.float32), "expected at most"),
    ({"type": "int64", "dim": [2], "num": [2, 9]}, np.array([2, 8]), r"obs/x: 2 at \[0\]"),
]


@pytest.mark.parametrize(("spec", "array", "message"), BAD_ARRAYS)
def test_a_bad_array_names_field_value_and_place(spec: Any, array: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_obs_spec(spec).validate("obs/x", array)


def test_bounds_may_be_left_to_the_environment() -> None:
    spec = parse_action_spec(ARM).array
    outside = np.array([5, 0], np.float32)
    spec.validate("action", outside, bounds=False)
    spec.validate("action", -outside, bounds=False)
    with pytest.raises(DataError, match=r"action: 5\.0"):
        spec.validate("action", outside)


def test_missing_specs_are_the_environments() -> None:
    nothing: Any
    for nothing in (None, {}):
        assert compare(nothing, NESTED, "obs_spec") == NESTED


def test_equal_specs_agree_whatever_their_form() -> None:
    assert compare({"dim": (4,)}, FLAT, "obs_spec") == FLAT
    assert compare({"type": "continuous", "dim": [2]}, ARM, "action_spec") == ARM
    same_bounds = {**ARM, "low": (np.float32(-1), -2)}
    assert compare(same_bounds, ARM, "action_spec") == ARM
    third = {"type": "continuous", "dim": [1], "low": [0.1]}
    assert compare({**third, "low": float(np.float32(0.1))}, third, "action_spec") == third


def test_bounds_that_the_environment_lacks_are_added() -> None:
    assert compare({**FLAT, "low": 0}, FLAT, "obs_spec") == {**FLAT, "low": 0}
    free = {"type": "continuous", "dim": [2]}
    assert compare({**free, "high": 3.0}, free, "action_spec") == {**free, "high": 3.0}


DIFFERENT = [
    ({"type": "float32", "dim": [5]}, FLAT, "obs_spec.dim"),
    ({"type": "float32", "dim": [4, 4]}, FLAT, "obs_spec.dim"),
    ({"type": "uint8", "dim": [4]}, FLAT, "obs_spec.type"),
    ({**DISCRETE, "num": 499}, DISCRETE, "obs_spec.num"),
    ({"image": FLAT}, FLAT, "obs_spec"),
    (FLAT, NESTED, "obs_spec"),
    ({"image": NESTED["image"]}, NESTED, "obs_spec"),
    ({**NESTED, "image": FLAT}, NESTED, "obs_spec.image.type"),
    ({**ARM, "low": [-1.0, -1.0]}, ARM, "obs_spec.low"),
]


@pytest.mark.parametrize(("mine", "theirs", "where"), DIFFERENT)
def test_specs_that_differ_are_shown_both(mine: Any, theirs: Any, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        compare(mine, theirs, "obs_spec")
    message = str(caught.value)
    assert message.startswith(f"env_config.{where} differs")
    for spec in (mine, theirs):
        assert str(spec).replace("'", '"') in message
    assert caught.value.exit_code == 2


@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["float32", "uint8", "int64", "bool"]),
    st.lists(st.integers(0, 2), max_size=2),
)
def test_zeros_always_fit_their_own_spec(dim: list[int], kind: str, leading: list[int]) -> None:
    spec = parse_obs_spec({"type": kind, "dim": dim})
    zeros = spec.zeros(*leading)
    assert zeros.shape == (*leading, *dim)
    spec.validate("obs", zeros)


def test_plain_gives_what_files_hold() -> None:
    spec = {"dim": (np.int64(2),), "low": np.array([1.5, 2.0], np.float32), "type": "x"}
    assert plain(spec) == {"dim": [2], "low": [1.5, 2.0], "type": "x"}
    assert ArraySpec("float32", ()).zeros(2).tolist() == [0, 0]
