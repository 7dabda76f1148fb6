"""Gymnasium's spaces, which Minari needs, from our specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from session.nest import Nest
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec

Space = spaces.Space[Any]


def spaces_from_specs(
    obs_spec: Mapping[str, Any], action_spec: Mapping[str, Any]
) -> tuple[Space, Space]:
    """Returns (observation space, action space) whose values are rows of these specs as they are.

    A spec has no start, so that discrete values start at 0. MultiBinary actions become
    MultiDiscrete, and ``critic_only`` is lost.

    Raises:
        SpecError: a spec is malformed.
    """
    return _space(parse_obs_spec(obs_spec)), _space(parse_action_spec(action_spec).array)


def leaves(space: Space) -> Iterator[Space]:
    """Yields the spaces in a nest of Dict and Tuple."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.values() if isinstance(space, spaces.Dict) else space:
            yield from leaves(part)
    else:
        yield space


def _space(spec: Nest) -> Space:
    if isinstance(spec, Mapping):
        return spaces.Dict({key: _space(part) for key, part in spec.items()})
    if isinstance(spec, tuple):
        return spaces.Tuple([_space(part) for part in spec])
    # Minari stores no dtype of these spaces: for another one a Box keeps it.
    if spec.num is not None and spec.type == "int64":
        return spaces.MultiDiscrete(spec.num) if spec.dim else spaces.Discrete(int(spec.num))
    if spec.num is not None and spec.type == "int8" and spec.dim and np.all(spec.num == 2):
        return spaces.MultiBinary(spec.dim)
    return _box(spec)


def _box(spec: ArraySpec) -> spaces.Box:
    """Returns a Box with the bounds of a spec; without, those of its count or its dtype."""
    limits: tuple[Any, Any] = (-np.inf, np.inf) if spec.dtype.kind == "f" else (0, 1)
    if spec.dtype.kind in "iu":
        limits = np.iinfo(spec.type).min, np.iinfo(spec.type).max
    if spec.num is not None:
        limits = 0, spec.num - 1
    low, high = (
        np.broadcast_to(limit if bound is None else bound, spec.dim).astype(spec.dtype)
        for limit, bound in zip(limits, (spec.low, spec.high), strict=True)
    )
    return spaces.Box(low, high, spec.dim, spec.dtype.type)
