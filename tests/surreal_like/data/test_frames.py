"""Specs of stacks, and which rows make one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.data.frames import frame_spec, stack_rows, stack_size, stack_spec
from surreal_like.data.spec import parse_obs_spec
from surreal_like.errors import SpecError

SPECS: list[dict[str, Any]] = [
    {"type": "uint8", "dim": [84, 84]},
    {"type": "float32", "dim": []},
    {"type": "int64", "dim": [2], "num": [3, 4]},
    {"type": "float32", "dim": [2], "low": [0.0, -1.0], "high": 1.0},
    {"goal": {"type": "float32", "dim": [3]}, "camera": {"type": "uint8", "dim": [8, 8, 3]}},
    {"0": {"type": "float32", "dim": [3]}, "1": {"type": "bool", "dim": [1]}},
]


@pytest.mark.parametrize("spec", SPECS)
def test_there_and_back(spec: dict[str, Any]) -> None:
    stacked = stack_spec(spec, 4)
    parse_obs_spec(stacked)  # it is a spec
    assert frame_spec(stacked, 4) == spec
    assert stack_spec(spec, 1) == frame_spec(spec, 1) == spec


def test_a_stack_has_one_axis_more() -> None:
    assert stack_spec(SPECS[0], 4) == {"type": "uint8", "dim": [4, 84, 84]}
    nested = stack_spec(SPECS[4], 2)
    assert (nested["goal"]["dim"], nested["camera"]["dim"]) == ([2, 3], [2, 8, 8, 3])


def test_bounds_hold_for_each_frame() -> None:
    spec = parse_obs_spec(stack_spec(SPECS[3], 2))
    assert spec.low.tolist() == [[0, -1], [0, -1]]


@pytest.mark.parametrize("dim", [[84, 84], [], None, 4])
def test_a_spec_of_something_else_is_refused(dim: Any) -> None:
    given = {"camera": {"type": "uint8", "dim": dim}}
    with pytest.raises(SpecError, match=r"obs_spec.camera.dim is .*frame_stack 4 puts an axis"):
        frame_spec(given, 4)


@pytest.mark.parametrize("size", [-1, 2.5, True, "4"])
def test_a_stack_of_a_wrong_number_is_refused(size: Any) -> None:
    with pytest.raises(ConfigError, match=r"env_config.frame_stack is"):
        stack_size({"frame_stack": size})


def test_none_is_one() -> None:
    assert [stack_size(config) for config in ({}, {"frame_stack": 0}, {"frame_stack": 1})] == [
        1
    ] * 3


def test_rows_by_hand() -> None:
    first = np.array([[0, 1], [0, 0], [1, 0], [0, 0]], np.bool_)
    rows = stack_rows(first, 3)
    assert rows[:, 0].tolist() == [[-2, -1, 0], [-1, 0, 1], [2, 2, 2], [2, 2, 3]]
    assert rows[:, 1].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
