"""Checks of the results of environments, and their batching to arrays [N, ...]."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from surreal_like.data.casts import cast
from surreal_like.data.spec import ArraySpec, parse_obs_spec
from surreal_like.env.environment import Info
from surreal_like.errors import DataError

_log = logging.getLogger(__name__)

_REWARD = ArraySpec("float32", ())
MOST = float(np.finfo(np.float32).max)
# Letters of a value in an error.
_SHOWN = 80


class ObservationBatch:
    """Collects the observations of one vector step; `put` N times, then `take`.

    Args:
        obs_spec: spec of one observation.
        num_envs: N.
        place: returns the words for a row in errors, from its number; None: its stream.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        num_envs: int,
        place: Callable[[int], str] | None = None,
    ) -> None:
        self._num_envs = num_envs
        self._place = place or (lambda row: f"in stream {row}")
        self._specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")
        self._single = [*self._specs] == ["obs"]
        self._warned: set[str] = set()
        self._rows = [
            (path, spec, np.empty((num_envs, *spec.dim), spec.dtype))
            for path, spec in self._specs.items()
        ]

    def put(self, stream: int, obs: nest.Nest) -> None:
        """Copies the observation of one stream. Raises DataError if it does not fit its spec."""
        if self._single and type(obs) is np.ndarray:
            _, spec, rows = self._rows[0]
            if obs.dtype == spec.dtype and obs.shape == spec.dim:
                rows[stream] = obs
                return
        if type(obs) is dict and self._put_parts(stream, obs):
            return
        flat = nest.flatten(obs, "obs")
        if flat.keys() != self._specs.keys():
            raise DataError(
                f"obs: parts {sorted(flat)} given {self._place(stream)}, "
                f"its spec has {sorted(self._specs)}"
            )
        for path, spec, rows in self._rows:
            rows[stream] = self._convert(path, flat[path], spec, stream)

    def _put_parts(self, stream: int, obs: dict[str, Any]) -> bool:
        """Copies a dict of arrays as their specs say; returns False for any other."""
        if len(obs) != len(self._rows):
            return False
        for path, spec, rows in self._rows:
            part = obs.get(path[4:])
            if type(part) is not np.ndarray or part.dtype != rows.dtype or part.shape != spec.dim:
                return False
            rows[stream] = part
        return True

    def _convert(self, path: str, value: Any, spec: ArraySpec, stream: int) -> npt.NDArray[Any]:
        """Returns the part of one stream as its spec says; warns once of another dtype."""
        try:
            given = cast(path, value, spec.dtype)
        except DataError as error:
            reason = str(error).removeprefix(path)
            raise DataError(f"{path} {self._place(stream)}{reason}") from error
        if given.shape != spec.dim:
            raise DataError(
                f"{path}: shape {list(given.shape)} given {self._place(stream)}, "
                f"its spec says {list(spec.dim)}"
            )
        dtype = np.asarray(value).dtype
        if dtype != spec.dtype and path not in self._warned:
            self._warned.add(path)
            _log.warning("%s: %s given, converted to %s as its spec says", path, dtype, spec.type)
        return given

    def take(self, count: int | None = None) -> nest.Nest:
        """Returns the nest of arrays [N, ...]. Raises DataError for a NaN or an infinity.

        count: number of rows that were put, n: the arrays are [n, ...]; None: all.
        """
        taken, self._rows = self._rows, []
        for path, spec, rows in taken:
            self._rows.append((path, spec, np.empty(rows.shape, spec.dtype)))
        if count is not None and count < self._num_envs:
            taken = [(path, spec, rows[:count]) for path, spec, rows in taken]
        for path, spec, rows in taken:
            # Checked before a network uses them, because its output would name another field.
            # Bytes, here and elsewhere in a step: a function of numpy costs two more calls.
            if rows.dtype.kind == "f" and 0 in np.isfinite(rows).tobytes():
                row = int(np.isfinite(rows).reshape(len(rows), -1).all(1).argmin())
                spec.validate(f"{path} {self._place(row)}", rows[row], bounds=False)
        if self._single:
            return taken[0][2]
        return nest.unflatten({path: rows for path, _, rows in taken}, "obs")


class InfoBatch:
    """Makes the info of a vector step from the infos of N environments.

    The first info fixes dtype and shape of each key of `env_config.info_keys`, float32 [] where it
    lacks the key, so that a column never changes. A missing key is 0.
    """

    def __init__(self, info_keys: Sequence[str], num_envs: int) -> None:
        self._keys = tuple(info_keys)
        self._zeros: dict[str, npt.NDArray[Any]] = {}
        self._num_envs = num_envs

    def __call__(self, infos: Sequence[Info], rewards: npt.NDArray[np.float32]) -> Info:
        """Returns `raw_reward`, `metrics`, `life_lost` where there are any, and each named key."""
        if not self._keys and not any(infos):
            return {}
        info: Info = {key: self._column(key, infos) for key in self._keys}
        if any("raw_reward" in one for one in infos):
            name = "info['raw_reward']"
            raw = [number(name, one.get("raw_reward", rewards[i])) for i, one in enumerate(infos)]
            info["raw_reward"] = cast(name, raw, np.float32)
        if any("metrics" in one for one in infos):
            info["metrics"] = [one.get("metrics") for one in infos]
        if any("life_lost" in one for one in infos):
            lost = [flag("info['life_lost']", one.get("life_lost", False)) for one in infos]
            info["life_lost"] = np.array(lost)
        return info

    def _column(self, key: str, infos: Sequence[Info]) -> npt.NDArray[Any]:
        values = [_number_array(key, one[key]) if key in one else None for one in infos]
        if key not in self._zeros:
            first = next((value for value in values if value is not None), np.zeros((), np.float32))
            self._zeros[key] = np.zeros_like(first)
        zero = self._zeros[key]
        column = np.zeros((self._num_envs, *zero.shape), zero.dtype)
        for stream, value in enumerate(values):
            if value is not None:
                self._check(key, value, stream)
                column[stream] = cast(f"info[{key!r}] in stream {stream}", value, zero.dtype)
        return column

    def _check(self, key: str, value: npt.NDArray[Any], stream: int) -> None:
        zero = self._zeros[key]
        if value.shape != zero.shape or not np.can_cast(value.dtype, zero.dtype, "same_kind"):
            raise DataError(
                f"info[{key!r}]: {value.dtype} {list(value.shape)} in stream {stream}, but the "
                f"first info had {zero.dtype} {list(zero.shape)}: give it in the info of reset too"
            )


def _number_array(key: str, value: Any) -> npt.NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise DataError(f"info[{key!r}]: {type(value).__name__} cannot be a column of numbers")
    return cast(f"info[{key!r}]", array, np.float32) if array.dtype == np.float64 else array


def reset_parts(result: Any) -> tuple[Any, Info]:
    """Returns the two parts of a result of `reset`. Raises DataError for a wrong one."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise DataError(f"reset() gave {kinds(result)}, expected (observation, info)")
    return result


def step_parts(result: Any) -> tuple[Any, Any, Any, Any, Info]:
    """Returns the five parts of a result of `step`. Raises DataError for a wrong one."""
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
        raise DataError(
            f"step() gave {kinds(result)}, "
            "expected (observation, reward, terminated, truncated, info)"
        )
    return result


def step_values(result: Any) -> tuple[Any, float, bool, bool, Info]:
    """Converts a result of `step` of an author's Env. Raises DataError for a wrong one."""
    # What is usual passes without the cost of its check, at each step of each environment.
    usual = type(result) is tuple and len(result) == 5 and type(result[4]) is dict
    obs, reward, terminated, truncated, info = result if usual else step_parts(result)
    if type(reward) is not float:
        reward = number("reward", reward)
    if terminated is not True and terminated is not False:
        terminated = flag("terminated", terminated)
    if truncated is not True and truncated is not False:
        truncated = flag("truncated", truncated)
    return obs, reward, terminated, truncated, info


def number(name: str, value: Any) -> float:
    """Returns a number of `step`, such as a reward, as a float.

    Numbers of numpy, whole numbers, bools, and arrays and tensors of one element are numbers, too.
    Raises DataError for anything else, a text included.
    """
    if type(value) is float:
        return value
    item = getattr(value, "item", None)
    try:
        plain = value if item is None else item()
        if not isinstance(plain, str | bytes):
            return float(plain)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    shown = textwrap.shorten(repr(value), _SHOWN, placeholder=" ...")
    raise DataError(f"{name}: {shown} given, expected a number")


def rewards_by_agent(rewards: Any) -> dict[str, float]:
    """Returns the reward of each agent as a float; an error names the agent.

    Raises DataError for another kind than a mapping, and for what is no number.
    """
    if not isinstance(rewards, Mapping):
        raise DataError(f"rewards: {kinds(rewards)} given, expected a mapping of agents to numbers")
    return {agent: number(f"reward of agent {agent}", each) for agent, each in rewards.items()}


def flag(name: str, value: Any) -> bool:
    """Returns a flag of `step` as a bool: True, False, 0 or 1. Raises DataError for another."""
    if value is True or value is False:
        return bool(value)
    given = cast(name, value, np.bool_)
    if given.size != 1:
        raise DataError(f"{name}: shape {list(given.shape)} given, expected True or False")
    return bool(given.item())


def step_rewards(
    rewards: Any, ignored: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.float32]:
    """Returns rewards of N streams as a private array, float32 [N].

    ignored: [N], streams whose reward is none; it becomes 0.
    Raises DataError for a NaN, an infinity, or a number too large for float32.
    """
    if type(rewards) is tuple and len(rewards) == 1 and abs(rewards[0]) <= MOST:
        # Of a single environment, without the cost of the general case.
        return np.array(rewards, np.float32)
    checked = cast("reward", rewards, np.float32, copy=True)
    if ignored is not None:
        checked[ignored] = 0.0
    if np.count_nonzero(np.isfinite(checked)) < checked.size:
        _REWARD.validate("reward", checked)
    return checked


def kinds(result: Any) -> str:
    """Describes a result of `reset` or `step`: `a dict`, or `2 values (ndarray, dict)`."""
    if not isinstance(result, tuple):
        return f"a {type(result).__name__}"
    return f"{len(result)} values ({', '.join(type(value).__name__ for value in result)})"
