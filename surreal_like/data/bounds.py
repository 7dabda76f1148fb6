"""Bounds of the numbers that joined machines and clients of gateways may send.

A number that is finite can still be wrong: one reward of 3e38 makes losses infinite, and moves
running means for ever. So values have to lie within the finite bounds of their spec, and within
:data:`LARGEST` where it has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.data.spec import ArraySpec

# Largest magnitude of a number that has no other bound.
LARGEST = 1e6
# The same where nothing is learned from it: its square, summed over a layer, fits into float32.
ANSWERED = 1e17
# Magnitude above which a value of an own agent is reported: it explains a loss that is not finite.
UNUSUAL = 1e12

Bounds = tuple[float, float]


def reward_bounds(env_config: Mapping[str, Any]) -> Bounds:
    """Returns the lowest and the highest reward that others may send.

    Args:
        env_config: the ``reward_range`` is that pair; None: -1e6 and 1e6.

    Raises:
        ConfigError: it is no pair of finite numbers, the lower one first.
    """
    given = env_config.get("reward_range")
    if given is None:
        return -LARGEST, LARGEST
    numbers = isinstance(given, list | tuple) and all(type(each) in (int, float) for each in given)
    if not numbers or len(given) != 2 or not -math.inf < given[0] < given[1] < math.inf:
        raise ConfigError(
            f"env_config.reward_range is {given!r}, expected two finite numbers, the lower one "
            "first, as in [-100, 100], or null"
        )
    return float(given[0]), float(given[1])


def bound(spec: ArraySpec, largest: float = LARGEST) -> ArraySpec:
    """Returns the spec with finite bounds everywhere: its own, else those of ``largest``.

    Specs whose values have few bits, or a count, stay as they are.
    """
    if spec.num is not None or spec.dtype.itemsize <= 2 or spec.dtype == np.bool_:
        return spec
    return replace(
        spec,
        low=_bound_of(spec, spec.low, -largest),
        high=_bound_of(spec, spec.high, largest),
    )


def within(dtype: np.dtype[Any]) -> ArraySpec:
    """Returns the spec, bounded, of numbers of which nothing else is known."""
    return bound(ArraySpec(dtype.name, ()))


def _bound_of(spec: ArraySpec, own: npt.NDArray[Any] | None, usual: float) -> npt.NDArray[Any]:
    limits: Any = np.finfo(spec.dtype) if spec.dtype.kind == "f" else np.iinfo(spec.dtype)
    # A bound at the end of the dtype says that there is none.
    end = limits.min if usual < 0 else limits.max
    wanted = np.array(end if abs(usual) > abs(float(end)) else usual, spec.dtype)
    if own is None:
        return wanted
    none = ~np.isfinite(own) | (np.asarray(own) == end)
    return np.where(none, wanted, own).astype(spec.dtype)
