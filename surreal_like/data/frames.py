"""Frame stacks: specs of stacks and of single frames, and the rows of each stack.

A stack of k holds the observations of rows t-k+1 .. t of one stream, the oldest first, on a new
axis in front. It does not cross episodes: before the first row the first one is repeated. Streams,
replay and the wire hold single frames, each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.errors import ConfigError
from surreal_like.data.spec import is_leaf
from surreal_like.errors import SpecError

Spec = Mapping[str, Any]


def stack_size(env_config: Mapping[str, Any]) -> int:
    """Returns the frames in a stack, k, at least 1, from ``env_config.frame_stack``.

    Raises:
        ConfigError: it is no whole number of 0 or more.
    """
    size = env_config.get("frame_stack", 0)
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ConfigError(f"env_config.frame_stack is {size!r}, expected a number of frames or 0")
    return max(size, 1)


def stack_spec(spec: Spec, size: int) -> dict[str, Any]:
    """Returns the observation spec of a stack of ``size`` frames; bounds hold for each frame."""
    if size == 1:
        return dict(spec)
    if not is_leaf(spec):
        return {key: stack_spec(child, size) for key, child in spec.items()}
    return {**spec, "dim": [size, *spec["dim"]]}


def frame_spec(spec: Spec, size: int, where: str = "env_config.obs_spec") -> dict[str, Any]:
    """Returns the observation spec of one frame of a stack: inverse of :func:`stack_spec`.

    Raises:
        SpecError: this is no spec of a stack of ``size`` frames.
    """
    if size == 1:
        return dict(spec)
    if not is_leaf(spec):
        return {key: frame_spec(child, size, f"{where}.{key}") for key, child in spec.items()}
    dim = spec.get("dim")
    if not isinstance(dim, list | tuple) or not dim or dim[0] != size:
        raise SpecError(
            f"{where}.dim is {dim!r}, but env_config.frame_stack {size} puts an axis of {size} in "
            "front of each observation: write it so, or leave env_config.obs_spec out"
        )
    return {**spec, "dim": list(dim[1:])}


def stack_rows(first: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.int64]:
    """Returns the numbers of the rows that make the stack at each row of whole streams.

    Args:
        first: True where an episode begins, ``[T, N]``.
        size: frames in a stack, k.

    Returns:
        ``[T, N, k]``, the oldest first: row numbers from ``1 - k`` on; those below 0 are rows
        before the first one given here.
    """
    rows = np.arange(len(first))
    begun = np.maximum.accumulate(np.where(first, rows[:, None], 1 - size), axis=0)
    wanted = rows[:, None, None] + np.arange(1 - size, 1)
    stacked: npt.NDArray[np.int64] = np.maximum(wanted, begun[:, :, None])
    return stacked
