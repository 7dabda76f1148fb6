"""Writes episodes as a recording: those of a policy that plays, of another format, or own logs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from session import nest
from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG
from session.config.named_code import place_of
from session.errors import UsageError
from session.nest import Array
from session.wire import Identity
from session.wire.codec import DTYPES, encode
from surreal_like.addons.recording.about import about
from surreal_like.addons.recording.segments import Kind, Record, SegmentedWriter, list_segments
from surreal_like.data.casts import cast
from surreal_like.data.columns import Manifest, manifest_of
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.data.timestep import encode_ends
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk

# Rows, and bytes, of a chunk.
_ROWS, _BYTES = 1000, 4 << 20
_REWARD = ArraySpec("float32", ())
_MILLISECONDS = 1000


class RecordingWriter:
    """Writes whole episodes to a new recording; a context manager.

    ::

        with RecordingWriter.of_env("demos", "gym:CartPole-v1") as demos:
            demos.add(observations, actions, rewards, terminated=True)

    Args:
        path: folder of the recording; a part of it must not exist.
        obs_spec, action_spec: specs of a row, as ``env_config`` has them.
        environment, algorithm: names, for the reader.
        policy: name of the policy, where a recording is of several.
        run: identity of what plays; empty: a new one.
        sender: name of what plays: a name of lower case letters, digits and hyphens.

    Attributes:
        episodes: number of episodes so far.
        specs: ``obs_spec`` and ``action_spec`` of a row.

    Raises:
        UsageError: the folder holds a recording.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        environment: str = "",
        algorithm: str = "",
        policy: str = DEFAULT_POLICY,
        run: str = "",
        sender: str = "writer",
    ) -> None:
        folder = Path(path) / PolicyId(policy).shard(0)
        if list_segments(folder):
            raise UsageError(f"{path} holds a recording: choose another folder, or remove it")
        self.episodes = 0
        self._obs = nest.flatten(parse_obs_spec(obs_spec), "obs")
        self._action = parse_action_spec(action_spec).array
        self.specs = {"obs_spec": dict(obs_spec), "action_spec": dict(action_spec)}
        names = {"algorithm": algorithm, "environment": environment, "policy": policy}
        begin = about(run or secrets.token_hex(6), specs=self.specs, **names)
        self._segments = SegmentedWriter(folder, encode(begin))
        self._identity = Identity(sender, int(time.time() * _MILLISECONDS))
        self._policy = policy
        self._parts: list[dict[str, Array]] = []
        # Dtype and shape of the columns of a row, of the first episode.
        self._manifest: Manifest = {}
        self._waiting = self._rows = self._sequence = self._stream = self._steps = 0

    @classmethod
    def of_env(
        cls, path: str | Path, env: str | Callable[..., Any], **settings: Any
    ) -> RecordingWriter:
        """Returns a writer of episodes of an environment.

        Args:
            path: folder of the recording.
            env: class or function that makes it, or its name, such as ``gym:CartPole-v1``,
                ``package.module:Class`` or ``file.py:Class``.
            settings: other keys of ``env_config``.

        Raises:
            ConfigError: there is no such environment, or a setting is wrong.
            UsageError: other processes cannot import the class.
        """
        from surreal_like.env.registry import derive_specs  # imports gymnasium

        env_name = env if isinstance(env, str) else place_of(env, "env")
        config = Config({"env_name": env_name, **settings}).extend(BASE_ENV_CONFIG)
        obs_spec, action_spec = derive_specs(config)
        obs_spec = frame_spec(obs_spec, stack_size(config))
        return cls(path, obs_spec=obs_spec, action_spec=action_spec, environment=env_name)

    def add(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extras: Any = None,
        versions: Any = 0,
    ) -> None:
        """Adds an episode of T steps.

        Args:
            observations: nest of arrays ``[T + 1, ...]``, the last observation included.
            actions: ``[T, ...]``.
            rewards: ``[T]``.
            terminated: True if the task itself ended, whatever ``truncated`` says.
            truncated: True if the episode was cut off by its environment, such as by a time limit.
                If neither is, the episode counts as cut: it has no end.
            extras: nest of further columns ``[T, ...]``.
            versions: versions of the parameters that acted, a number or ``[T]``.

        Raises:
            DataError: an array does not fit; names the episode, the array and the place.
        """
        where = f"episode {self.episodes + 1:,}"
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if np.ndim(flag):
                shape: list[int] = list(np.shape(flag))
                raise DataError(
                    f"{where}: {name}: {shape} given, expected one flag: {name}={name}[-1]"
                )
        try:
            columns = self._columns(observations, actions, rewards, extras, versions)
        except (DataError, ValueError) as error:
            raise DataError(f"{where}: {error}") from None
        rows = len(columns["reward"])
        first = np.arange(rows) == 0
        columns["terminated"] = np.zeros(rows, np.bool_)
        columns["truncated"] = np.zeros(rows, np.bool_)
        columns["terminated"][-1] = terminated
        columns["truncated"][-1] = truncated
        columns = encode_ends(columns, first)
        manifest = manifest_of(columns, axes=1)
        if self.episodes and manifest != self._manifest:
            raise DataError(f"{where}: it has other extras than the episodes before")
        self._manifest = manifest
        self._parts.append(columns)
        self.episodes += 1
        self._waiting += rows
        cut = not (terminated or truncated)
        if cut or self._waiting >= self._most_rows(columns):
            self._flush(tail=cut)

    def _columns(
        self, observations: Any, actions: Any, rewards: Any, extras: Any, versions: Any
    ) -> dict[str, Array]:
        acted = cast("actions", actions, self._action.dtype)
        steps = len(acted) if acted.ndim else 0
        if not steps:
            raise DataError(f"actions: {list(acted.shape)} given, expected at least one step")
        if rewards is None:
            raise DataError("no rewards: where there are none, give zeros")
        reward = cast("rewards", rewards, np.float32)
        if reward.shape != (steps,):
            raise DataError(
                f"rewards: {list(reward.shape)} given, expected [{steps}], one for each action"
            )
        _REWARD.validate("rewards", reward)
        columns = {}
        found = nest.flatten(observations, "obs")
        given = ", ".join(found)
        for name, spec in self._obs.items():
            if name not in found:
                raise DataError(f"{name} is missing, there are {given}")
            columns[name] = _check(name, found.pop(name), spec, steps + 1)
        if found:
            raise DataError(f"{', '.join(found)}: not in the spec of observations")
        columns["action"] = _with_last(_check("actions", acted, self._action, steps))
        columns["reward"] = np.concatenate([np.zeros(1, np.float32), reward])
        version = cast("versions", versions, np.int64)
        if version.shape not in ((), (steps,)):
            raise DataError(f"versions: {list(version.shape)} given, expected [{steps}]")
        version = np.broadcast_to(version, (steps,))
        columns["version"] = np.append(version, version[-1:])
        for name, column in nest.flatten(extras or {}, "extras").items():
            columns[name] = _with_last(_check_extra(name, column, steps))
        return columns

    def _most_rows(self, columns: Mapping[str, Array]) -> int:
        """Returns the rows of a chunk."""
        row_bytes = sum(int(column[0].nbytes) for column in columns.values())
        return max(1, min(_ROWS, _BYTES // row_bytes))

    def _flush(self, *, tail: bool = False) -> None:
        """Writes what waits as chunks; ``tail``: its last episode has no end."""
        parts, self._parts, self._waiting = self._parts, [], 0
        if not parts:
            return
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows, most = len(columns["reward"]), self._most_rows(columns)
        for begin in range(0, rows, most):
            piece = {name: column[begin : begin + most, None] for name, column in columns.items()}
            self._write(piece, tail=tail and begin + most >= rows)
        self._stream += tail

    def _write(self, columns: Mapping[str, Array], *, tail: bool) -> None:
        self._sequence += 1
        chunk = Chunk(columns, self._sequence, [self._stream], tail=tail, policy=self._policy)
        self._steps += chunk.count_steps()
        chunk.rows, chunk.env_steps = self._rows + chunk.size, self._steps
        message = chunk.to_message()
        message.sender = self._identity
        self._segments.append([Record(Kind.CHUNK, self._rows, time.time(), encode(message))])
        self._rows += chunk.size

    def close(self) -> None:
        """Writes what is left, and closes the files."""
        self._flush()
        self._segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check(name: str, value: Any, spec: ArraySpec, rows: int) -> Array:
    array = cast(name, value, spec.dtype)
    if array.shape != (rows, *spec.dim):
        hint = ", the last observation included" if name.startswith("obs") else ""
        raise DataError(f"{name}: {list(array.shape)} given, expected {[rows, *spec.dim]}{hint}")
    spec.validate(name, array, bounds=False)
    return array


def is_written(dtype: np.dtype[Any]) -> bool:
    """Returns True for numbers that a column of a recording can hold."""
    return dtype.newbyteorder("<").str in DTYPES


def _check_extra(name: str, value: Any, rows: int) -> Array:
    array = np.asarray(value)
    if not is_written(array.dtype):
        raise DataError(f"{name}: {array.dtype} given, expected numbers of at most 8 bytes")
    if array.shape[:1] != (rows,):
        raise DataError(f"{name}: {list(array.shape)} given, expected [{rows}, ...]")
    if np.isnan(array).any():
        raise DataError(f"{name} holds a NaN")
    return array


def _with_last(column: Array) -> Array:
    """Adds a row at which no action was taken: zeros."""
    return np.concatenate([column, np.zeros_like(column[:1])])
