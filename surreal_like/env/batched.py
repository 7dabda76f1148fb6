"""Batched environments, which step N copies in one call: a VectorEnv that checks their values.

They are objects of `gymnasium.vector.VectorEnv`, in any of its autoreset modes, or of our own
VectorEnv. Arrays may be of numpy, or anything with `__dlpack__`, such as a tensor of PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from session import nest
from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.casts import cast
from surreal_like.data.spec import ArraySpec, Bounds, parse_action_spec, parse_obs_spec
from surreal_like.env.actions import Outside
from surreal_like.env.environment import Env, Info, Step, VectorEnv, VectorStep
from surreal_like.env.spaces import (
    action_bounds,
    action_writer,
    observation_reader,
    specs_from_spaces,
)
from surreal_like.env.step_results import kinds, step_rewards
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector_base import CheckedVector, Flags
from surreal_like.errors import DataError

Batched = gymnasium.vector.VectorEnv[Any, Any, Any] | VectorEnv

# Parts of `info` of our own VectorEnv that are no columns, with their dtypes.
_OWN_INFO = {"raw_reward": np.float32, "life_lost": np.bool_, "metrics": None}


class BatchedVector(CheckedVector):
    """A batched environment, with checks of all that goes in and comes out.

    outside: as in ActionValidator.
    info_keys: keys of `info` that become columns; 0 where missing.

    takes_tasks: True if an environment gets the task of the run with its resets.

    Raises ConfigError if a `gymnasium.vector.VectorEnv` does not say how it resets.
    """

    def __init__(
        self, env: Batched, *, outside: Outside = "clip", info_keys: tuple[str, ...] = ()
    ) -> None:
        kind = _Own(env) if isinstance(env, VectorEnv) else _Gymnasium(env)
        self.env, self._kind = env, kind
        super().__init__(
            env.num_envs,
            kind.obs_spec,
            kind.action_spec,
            metadata=env.metadata,
            info_keys=info_keys,
            outside=outside,
            bounds=kind.bounds,
        )
        self._rows = (env.num_envs,)
        self.resets_in_step = kind.mode is not AutoresetMode.NEXT_STEP
        # Gymnasium resets without options in its other modes.
        self.takes_tasks = kind.mode is AutoresetMode.DISABLED
        self._specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(self.obs_spec), "obs")
        self._columns = _InfoColumns(info_keys)
        self._seed: int | None = None
        self._closed = False

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._seed = seed

    def _reset(self) -> tuple[Nest, Info]:
        """Resets every stream; the first time after `seed` with the seed."""
        obs, info = _pair(self._kind.reset(self._seed, dict(self.feed.task) or None))
        self._seed = None
        return self.read(obs, self.num_envs), self._columns.take(info, self.num_envs)

    def _step(self, actions: npt.NDArray[Any], ended: Flags) -> VectorStep:
        result = self.env.step(self._kind.write(actions))
        if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
            wanted = "(observations, rewards, terminated, truncated, info)"
            raise DataError(f"step() gave {kinds(result)}, expected {wanted}")
        obs, reward, terminated, truncated, info = result
        # Some give the reward of the action that they ignored.
        rewards = step_rewards(self._row("reward", reward), ended)
        terminations = cast("terminated", self._row("terminated", terminated), np.bool_, copy=True)
        truncations = cast("truncated", self._row("truncated", truncated), np.bool_, copy=True)
        columns = self._take_info(info) if info or self._columns.keys else {}
        if self.resets_in_step and np.count_nonzero(last := terminations | truncations):
            obs, columns = self._begin_next(obs, info, columns, last)
        return self.read(obs, self.num_envs), rewards, terminations, truncations, columns

    def _take_info(self, info: Info) -> Info:
        """Returns the columns of an info, and what the rows' accounts need of it."""
        columns = self._columns.take(info, self.num_envs)
        for key in self._kind.passes.keys() & info.keys():
            dtype = self._kind.passes[key]
            value = self._row(f"info[{key!r}]", info[key]) if dtype else info[key]
            columns[key] = cast(f"info[{key!r}]", value, dtype, copy=True) if dtype else value
        return columns

    def _begin_next(self, obs: Any, info: Info, columns: Info, last: Flags) -> tuple[Any, Info]:
        """Returns the observations and the info after the reset of streams that have ended."""
        count = int(np.count_nonzero(last))
        if self._kind.mode is AutoresetMode.SAME_STEP:
            if "final_obs" not in info:
                raise DataError(
                    "info has no final_obs, but episodes have ended and the environment resets in "
                    "the same step: give the last observations there"
                )
            final_obs = self.read(self._kind.final_obs(info["final_obs"], last), count)
            given = info.get("final_info") or {}
            final = self._columns.take({k: self._kind.select(given[k], last) for k in given}, count)
        else:
            final_obs = nest.map(lambda leaf: leaf[last], self.read(obs, len(last)))
            final = {key: columns[key][last] for key in self._columns.keys}
            obs, begun = self.reset_streams(last)
            for key, column in self._columns.take(begun, len(last)).items():
                columns[key] = np.where(_along(last, column), column, columns[key])
        return obs, columns | {"final_obs": final_obs, "final_info": final}

    def reset_streams(self, streams: Flags) -> tuple[Any, Info]:
        """Resets these streams with the newest task; needs `takes_tasks`. Not yet checked."""
        # A new mapping each time: Gymnasium takes the mask out of it.
        options = {**self.feed.task, "reset_mask": streams.copy()}
        return _pair(self._kind.reset(None, options))

    def _row(self, name: str, values: Any) -> npt.NDArray[Any]:
        """Returns one value per stream. Raises DataError for another shape."""
        array = values if type(values) is np.ndarray else np.asarray(as_numpy(values))
        if array.shape != self._rows:
            raise DataError(
                f"{name}: shape {list(array.shape)} given, expected [{self.num_envs}]: one for "
                "each stream"
            )
        return array

    def read(self, obs: Any, rows: int) -> Nest:
        """Returns observations as a nest of private arrays [rows, ...], checked."""
        if type(obs) is not np.ndarray:
            obs = nest.map(as_numpy, obs)
        read = self._kind.read(obs)
        # Few microseconds, at each step: one array needs no flattening.
        alone = type(read) is np.ndarray
        for path, leaf in ({"obs": read} if alone else nest.flatten(read, "obs")).items():
            spec = self._specs[path]
            if leaf.shape != (rows, *spec.dim):
                raise DataError(
                    f"{path}: shape {list(leaf.shape)} given, expected {[rows, *spec.dim]}: the "
                    "streams, then as its spec says"
                )
            # Checked before a network uses them, because its output would name another field.
            if leaf.dtype.kind == "f" and np.count_nonzero(np.isfinite(leaf)) < leaf.size:
                spec.validate(path, leaf, bounds=False)
        return read

    def render(self) -> Any:
        images: Any = self.env.render()
        batch = isinstance(images, tuple | list) or getattr(images, "ndim", 3) > 3
        return images[0] if batch and len(images) else images

    def close(self) -> None:
        """Closes the environment."""
        if not self._closed:
            self._closed = True
            self.env.close()


class _Gymnasium:
    """Specs, values and resets of a `gymnasium.vector.VectorEnv`."""

    passes: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        self._env = env
        space, actions = env.single_observation_space, env.single_action_space
        self.obs_spec, self.action_spec = specs_from_spaces(space, actions)
        self.read = observation_reader(space)
        self.write = action_writer(actions)
        self.bounds = action_bounds(actions)
        try:
            self.mode = AutoresetMode(env.metadata.get("autoreset_mode"))
        except ValueError as error:
            modes = ", ".join(f"{mode}" for mode in AutoresetMode)
            raise ConfigError(
                f"env_config.env_name: metadata['autoreset_mode'] of {type(env).__name__} is "
                f"{env.metadata.get('autoreset_mode')!r}, expected one of {modes}: give the class "
                "metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}"
            ) from error

    def reset(self, seed: int | None, options: dict[str, Any] | None = None) -> Any:
        return self._env.reset(seed=seed, options=options)

    def select(self, column: Any, last: Flags) -> Any:
        """Returns what belongs to the streams that have ended."""
        array = np.asarray(as_numpy(column))
        return array[last] if array.ndim and len(array) == len(last) else array

    def final_obs(self, given: Any, last: Flags) -> Any:
        """Returns the last observations of the streams that have ended."""
        if not isinstance(given, np.ndarray) or given.dtype != object:
            return nest.map(lambda leaf: self.select(leaf, last), given)
        # As `SyncVectorEnv` gives them: an observation or None for each stream.
        return nest.stack([nest.map(as_numpy, each) for each in given[last].tolist()])


class _Own:
    """Specs, values and resets of a VectorEnv of an author."""

    passes: Mapping[str, Any] = MappingProxyType(_OWN_INFO)

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.obs_spec, self.action_spec = dict(env.obs_spec), dict(env.action_spec)
        self._dtypes = {
            path: spec.dtype
            for path, spec in nest.flatten(parse_obs_spec(self.obs_spec), "obs").items()
        }
        action = parse_action_spec(self.action_spec)
        self.bounds: Bounds | None = (action.low, action.high)
        self.mode = AutoresetMode.SAME_STEP if env.resets_in_step else AutoresetMode.NEXT_STEP

    def read(self, obs: Nest) -> Nest:
        flat = nest.flatten(obs, "obs")
        if flat.keys() != self._dtypes.keys():
            raise DataError(f"obs: parts {sorted(flat)} given, its spec has {sorted(self._dtypes)}")
        read = {
            path: cast(path, flat[path], kind, copy=True) for path, kind in self._dtypes.items()
        }
        return nest.unflatten(read, "obs")

    def write(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return actions

    def reset(self, seed: int | None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._env.seed(seed)
        return self._env.reset()

    def select(self, column: Any, last: Flags) -> Any:
        return column

    def final_obs(self, given: Nest, last: Flags) -> Nest:
        return given


class _InfoColumns:
    """Columns of `info`, one array per key; the first info fixes dtype and shape of each.

    Numbers of float64 become float32, as those of single environments do.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._zeros: dict[str, npt.NDArray[Any]] = {}

    def take(self, info: Mapping[str, Any], rows: int) -> Info:
        return {key: self._take(key, info, rows) for key in self.keys}

    def _take(self, key: str, info: Mapping[str, Any], rows: int) -> npt.NDArray[Any]:
        given = np.asarray(as_numpy(info[key])) if key in info else None
        if key not in self._zeros:
            first = np.zeros(1, np.float32) if given is None or not given.ndim else given
            dtype = np.dtype(np.float32) if first.dtype == np.float64 else first.dtype
            self._zeros[key] = np.zeros(first.shape[1:], dtype)
        zero = self._zeros[key]
        wanted = (rows, *zero.shape)
        if given is None:
            return np.zeros(wanted, zero.dtype)
        if given.shape != wanted:
            raise DataError(
                f"info[{key!r}]: shape {list(given.shape)} given, expected {list(wanted)}, one for "
                "each stream, as in the info of reset"
            )
        return cast(f"info[{key!r}]", given, zero.dtype, copy=True)


class FirstStream(Env):
    """The first stream of a batched environment as an Env, where a single one is looked at.

    All other streams take the same actions.
    """

    def __init__(self, vector: BatchedVector) -> None:
        self.vector = vector
        self.obs_spec, self.action_spec = vector.obs_spec, vector.action_spec
        self.metadata = vector.metadata
        self._feed = TaskFeed({})
        if vector.takes_tasks:
            vector.feed = self._feed

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self.vector.seed(seed)

    def reset(self) -> tuple[Nest, Info]:
        obs, info = self.reset_all()
        return _first(obs), {key: column[0] for key, column in info.items()}

    def reset_all(self) -> tuple[Nest, Info]:
        """Resets every stream with the task; returns observations and info of all."""
        self._feed.task = self.task
        return self.vector.reset()

    def step(self, action: Any) -> Step:
        actions = np.repeat(np.asarray(action)[None], self.vector.num_envs, axis=0)
        obs, reward, terminated, truncated, info = self.vector.step(actions)
        final_obs, final = info.pop("final_obs", obs), info.pop("final_info", {})
        over = bool(terminated[0] or truncated[0])
        columns = {key: column[0] for key, column in (info | (final if over else {})).items()}
        seen = _first(final_obs if over else obs)
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), columns

    @property
    def draws(self) -> bool:
        """True if the batched environment has a method `render` of its own."""
        bases = gymnasium.vector.VectorEnv.render, VectorEnv.render
        return type(self.vector.env).render not in bases

    def render(self) -> Any:
        return self.vector.render()

    def close(self) -> None:
        self.vector.close()


def as_numpy(value: Any) -> Any:
    """Returns what has `__dlpack__` as an array of numpy, without a copy where it is on the CPU.

    Everything else is returned as it is.
    """
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return value
    # Tensors are recognised without importing torch.
    detach = getattr(value, "detach", None)
    on_cpu = value if detach is None else detach().cpu()
    try:
        return np.from_dlpack(on_cpu)
    except (BufferError, RuntimeError, TypeError, ValueError):
        # Of another device, or of a dtype that the protocol lacks.
        return np.asarray(on_cpu)


def _pair(result: Any) -> tuple[Any, Info]:
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise DataError(f"reset() gave {kinds(result)}, expected (observations, info)")
    return result


def _first(obs: Nest) -> Nest:
    return nest.map(lambda leaf: leaf[0], obs)


def _along(flags: Flags, column: npt.NDArray[Any]) -> Flags:
    return flags.reshape(-1, *(1,) * (column.ndim - 1))
