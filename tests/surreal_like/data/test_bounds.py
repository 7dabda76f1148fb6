"""Bounds of what others send: of the spec, of the config, else those of nothing known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.data.bounds import bound, reward_bounds
from surreal_like.data.spec import OBS_TYPES, ArraySpec, parse_obs_spec


def test_rewards_have_the_range_of_the_config() -> None:
    assert reward_bounds({}) == reward_bounds({"reward_range": None}) == (-1e6, 1e6)
    assert reward_bounds({"reward_range": [-1, 2.5]}) == (-1.0, 2.5)


@pytest.mark.parametrize(
    "given", [3, [], [1], [1, 0], [0, 0], [0, 1, 2], ["a", "b"], [0, np.inf], [math.nan, 1]]
)
def test_what_is_no_range_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"env_config\.reward_range is .*, expected two finite"):
        reward_bounds({"reward_range": given})


WIDE = {"float32": [-1e6, 1e6], "int32": [-1e6, 1e6], "int64": [-1e6, 1e6], "uint32": [0.0, 1e6]}


@pytest.mark.parametrize("kind", OBS_TYPES)
def test_a_spec_without_bounds_gets_those_that_its_dtype_can_hold(kind: str) -> None:
    made = bound(ArraySpec(kind, (2,)))
    found = [float(bound) for bound in (made.low, made.high) if bound is not None]
    # Of the others each value is within them.
    assert found == WIDE.get(kind, [])


def test_a_count_is_its_own_bound() -> None:
    spec = parse_obs_spec({"type": "int64", "dim": [], "num": 5_000_000})
    assert isinstance(spec, ArraySpec)
    assert bound(spec) is spec
