"""Gymnasium's spaces: their specs, and the conversion of their values to ours and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from session.nest import Nest
from surreal_like.data.casts import cast
from surreal_like.data.spec import Bounds, keep_parts
from surreal_like.errors import DataError, SpecError


def specs_from_spaces(
    obs_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns specs of one environment, (obs_spec, action_spec), in the form of `env_config`.

    Raises SpecError for a space that has no spec (text, graphs, sequences, nested actions).
    """
    return _obs_spec(obs_space), _action_spec(action_space)


def choose_parts(space: spaces.Space[Any], keep: Sequence[str]) -> spaces.Space[Any]:
    """Returns a Dict of the parts to keep; without any, the space itself."""
    if not keep:
        return space
    parts = dict(space.items()) if isinstance(space, spaces.Dict) else {}
    return spaces.Dict({key: parts[key] for key in keep_parts(list(parts), keep)})


def add_bounds(spec: Mapping[str, Any], space: spaces.Space[Any]) -> dict[str, Any]:
    """Returns an observation spec with the bounds of the Boxes of its space, where it has none.

    Parts that are not in the space, and a space that is one part of the spec, stay as they are.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        known: dict[str, Any] = {str(key): part for key, part in dict(parts).items()}
        return {k: add_bounds(x, known[k]) if k in known else x for k, x in spec.items()}
    if "observation" in spec:
        return {**spec, "observation": add_bounds(spec["observation"], space)}
    return (
        {"low": space.low, "high": space.high, **spec}
        if isinstance(space, spaces.Box)
        else {**spec}
    )


def observation_reader(
    space: spaces.Space[Any], path: str = "obs", *, copy: bool = True
) -> Callable[[Any], Nest]:
    """Returns a function that converts an observation, or a batch of them, to a nest of arrays.

    Floats become float32, discrete values int64 counted from 0. The result is a copy. The function
    raises DataError for a value that the type of its part cannot hold.

    path: of the space, for the errors.
    copy: False: an array that needs no conversion stays the environment's.
    """
    if isinstance(space, spaces.Dict):
        readers = {
            key: observation_reader(part, f"{path}/{key}", copy=copy) for key, part in space.items()
        }
        return lambda obs: {key: read(_part(obs, key)) for key, read in readers.items()}
    if isinstance(space, spaces.Tuple):
        parts = [observation_reader(part, f"{path}/{i}", copy=copy) for i, part in enumerate(space)]
        return lambda obs: tuple(read(_part(obs, i)) for i, read in enumerate(parts))
    dtype = np.dtype(_obs_spec(space)["type"])
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(space.start):
        start = space.start
        return lambda obs: cast(path, obs, dtype) - start

    def read(obs: Any) -> Nest:
        if copy and type(obs) is np.ndarray and obs.dtype is dtype:
            return obs.copy()
        return cast(path, obs, dtype, copy=copy)

    return read


def action_writer(space: spaces.Space[Any]) -> Callable[[npt.NDArray[Any]], Any]:
    """Returns a function that converts our action, or a batch of them, to one of the space."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        # One action becomes an int: environments look it up in dicts, where an array has no hash.
        if start == 0:
            return lambda action: action if action.ndim else action.item()
        return lambda action: action + start if action.ndim else action.item() + start
    dtype, shape = space.dtype, space.shape or ()
    if isinstance(space, spaces.Box):
        low, high, exact = space.low, space.high, dtype == np.float32
        if exact and shape:
            return lambda action: action

        def write(action: npt.NDArray[Any]) -> npt.NDArray[Any]:
            # Ours has an axis where the space has none.
            given = action if shape else action.reshape(action.shape[:-1])
            # Clipped once more: another dtype has other numbers at the bounds.
            return given if exact else np.asarray(np.clip(given.astype(dtype), low, high))

        return write
    starts = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(shape, dtype)
    return lambda action: action.reshape(*action.shape[:-1], *shape).astype(dtype) + starts


def action_bounds(space: spaces.Space[Any]) -> Bounds | None:
    """Returns the bounds of a Box, in its dtype; None for another space."""
    if not isinstance(space, spaces.Box):
        return None
    return np.atleast_1d(space.low), np.atleast_1d(space.high)


def _part(obs: Any, key: Any) -> Any:
    try:
        return obs[key]
    except (KeyError, IndexError, TypeError) as error:
        raise DataError(f"obs: the environment gave no part {key!r}") from error


def _obs_spec(space: spaces.Space[Any], key: str = "") -> dict[str, Any]:
    """Returns the spec of a space; key: outermost part of a Dict that contains the space."""
    if isinstance(space, spaces.Dict):
        return {_key(k, space): _obs_spec(child, key or k) for k, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return {str(i): _obs_spec(child, key) for i, child in enumerate(space)}
    if isinstance(space, spaces.Discrete):
        return {"type": "int64", "dim": [], "num": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "int64", "dim": list(space.nvec.shape), "num": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "int8", "dim": list(space.shape), "num": 2}
    if isinstance(space, spaces.Box):
        dtype = np.dtype(space.dtype)
        kind = "float32" if dtype.kind == "f" else dtype.name
        return {"type": kind, "dim": list(space.shape)}
    place = f" of the part {key!r}" if key else ""
    drop = "leave it out (env_config.obs_keys has the parts that are used), or " if key else ""
    raise SpecError(
        f"observation space {space}{place} is not supported, but Box, Discrete, MultiDiscrete, "
        f"MultiBinary, Dict and Tuple are: {drop}make it one of these in a wrapper"
    )


def _action_spec(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Discrete):
        return {"type": "discrete", "dim": [int(space.n)]}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "multi_discrete", "dim": space.nvec.ravel().tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "multi_discrete", "dim": [2] * int(np.prod(space.shape))}
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        low, high = np.atleast_1d(space.low), np.atleast_1d(space.high)
        spec: dict[str, Any] = {"type": "continuous", "dim": list(low.shape)}
        for key, bound in (("low", low), ("high", high)):
            if np.isfinite(bound).any():
                spec[key] = bound.tolist() if bound.dtype == np.float64 else _short(bound)
        return spec
    raise SpecError(
        f"action space {space} is not supported, but Discrete, MultiDiscrete, MultiBinary and Box "
        "of floats are: make it one of these in a wrapper"
    )


def _short(bound: npt.NDArray[Any]) -> Any:
    """Returns nested lists of the shortest numbers that are the same in float32."""
    as_text = bound.astype(np.float32).astype(str)
    return as_text.astype(np.float64).tolist()


def _key(key: Any, space: spaces.Dict) -> str:
    if not isinstance(key, str) or not key or "/" in key:
        raise SpecError(
            f"observation space {space}: {key!r} cannot name a part of an observation: rename it "
            "in a wrapper to a text without a slash, or leave it out (env_config.obs_keys has the "
            "parts that are used)"
        )
    return key
