"""Wrappers around one Env: those enabled by a key of the config, and `FilterObservation`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from session import nest
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.casts import cast
from surreal_like.data.spec import is_leaf, keep_parts
from surreal_like.env.actions import ActionValidator
from surreal_like.env.environment import Env, Info, ObservationWrapper, Step, Wrapper
from surreal_like.env.step_results import number
from surreal_like.errors import DataError

# Keys of `env_config` that wrap each environment -> the value without a wrapper, and what to do
# instead: in an environment that steps its copies itself, and in one of several agents.
WRAPPER_KEYS: Mapping[str, tuple[Any, str, str]] = {
    "action_repeat": (
        1,
        "repeat in its step",
        "a wrapper such as supersuit:frame_skip_v0 in env_config.wrappers repeats",
    ),
    "obs_keys": (
        [],
        "leave the other parts out of its observations",
        "a wrapper of PettingZoo can leave parts out",
    ),
    "metric_keys": ([], "info_keys makes columns of them", "leave it out"),
}


def horizon(limit: float | None) -> int | None:
    """Returns the steps that `env_config.limit_episode_length` allows, None for no limit.

    0, None and negative numbers mean none; 30000.0 is 30000. Raises ConfigError for a fraction.
    """
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is None or (number and (limit <= 0 or limit == math.inf)):
        return None
    if not number or not float(limit).is_integer():
        raise ConfigError(
            f"env_config.limit_episode_length is {limit!r}: expected a whole number of steps, "
            "or 0 for no limit"
        )
    return int(limit)


class LimitEpisodeLength(Wrapper):
    """Truncates every episode after `limit` steps, as a time limit does."""

    def __init__(self, env: Env, limit: int) -> None:
        super().__init__(env)
        self._limit = limit
        self._steps = 0

    def reset(self) -> tuple[Nest, Info]:
        """Starts an episode and counts from 0."""
        self._steps = 0
        return self.env.reset()

    def step(self, action: Any) -> Step:
        """Steps; the last allowed step is truncated, whether or not it also terminates."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        return obs, reward, terminated, truncated or self._steps >= self._limit, info


class ActionRepeat(Wrapper):
    """Takes each action `repeat` times, fewer where the episode ends, and sums the rewards."""

    def __init__(self, env: Env, repeat: int) -> None:
        super().__init__(env)
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise ConfigError(f"env_config.action_repeat is {repeat!r}: expected 1 or more")
        self._repeat = repeat

    def step(self, action: Any) -> Step:
        """Steps; observation, flags and info are those of the last inner step."""
        total = raw_total = 0.0
        for _ in range(self._repeat):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += number("reward", reward)
            raw_total += number("info['raw_reward']", info.get("raw_reward", reward))
            if terminated or truncated:
                break
        if "raw_reward" in info:
            info = {**info, "raw_reward": raw_total}
        return obs, total, terminated, truncated, info


class ClipAction(Wrapper):
    """Clips continuous actions to the bounds of the environment; a NaN is a DataError.

    clip: False makes an action outside the bounds a DataError too.
    """

    def __init__(self, env: Env, *, clip: bool = True) -> None:
        super().__init__(env)
        self._door = ActionValidator(env.action_spec, outside="clip" if clip else "refuse")

    def step(self, action: Any) -> Step:
        """Steps with an action inside the bounds."""
        return self.env.step(self._door(action))


class FilterObservation(ObservationWrapper):
    """Leaves some parts of a dict of observations.

    Args:
        env: environment with a dict of observations.
        keep: parts that stay.

    Raises:
        ConfigError: the observations lack a part.
    """

    def __init__(self, env: Env, keep: Sequence[str]) -> None:
        super().__init__(env)
        spec = env.obs_spec
        self._keys = keep_parts([] if is_leaf(spec) else list(spec), keep)
        self.obs_spec = {key: spec[key] for key in self._keys}

    def change_obs(self, obs: Any) -> Nest:
        """Returns the kept parts."""
        return {key: obs[key] for key in self._keys if key in obs}


class FloatObservation(ObservationWrapper):
    """Makes float32 numbers of all parts of the observations, as they are.

    A whole number that float32 cannot hold, above 16777216, is a DataError.

    For small whole numbers in bytes, which networks would otherwise get divided by 255;
    `model.normalize_obs` gives them a scale.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.obs_spec = _float_spec(env.obs_spec)

    def change_obs(self, obs: Any) -> Nest:
        """Returns float32 numbers."""
        return nest.map(lambda part: cast("obs", part, np.float32), obs)


class NeverTerminate(Wrapper):
    """Makes truncations of terminations: the end of an episode costs nothing that would follow."""

    def step(self, action: Any) -> Step:
        """Steps; the next value counts at every end of an episode."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, False, truncated or terminated, info


class MetricsOfInfo(Wrapper):
    """Makes metrics of an episode of numbers in the `info` of its last step.

    keys: names in `info`. Raises ConfigError for one that is no text, DataError at the end of an
    episode for one that is missing there or is no number.
    """

    def __init__(self, env: Env, keys: Sequence[str]) -> None:
        super().__init__(env)
        if not all(isinstance(key, str) for key in keys):
            raise ConfigError(f"env_config.metric_keys is {list(keys)}, expected names in info")
        self._keys = tuple(keys)

    def step(self, action: Any) -> Step:
        """Steps; the last step of an episode has the numbers in `info["metrics"]`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            found = {key: self._number(info, key) for key in self._keys}
            info = {**info, "metrics": {**(info.get("metrics") or {}), **found}}
        return obs, reward, terminated, truncated, info

    def _number(self, info: Info, key: str) -> float:
        if key not in info:
            known = ", ".join(map(str, info)) or "nothing"
            hint = did_you_mean(key, map(str, info), otherwise=f"there is {known}")
            raise DataError(
                f"env_config.metric_keys: no {key!r} in info at an episode's end; {hint}"
            )
        value = np.asarray(info[key])
        if value.size != 1 or value.dtype.kind not in "biuf":
            raise DataError(f"env_config.metric_keys: {key!r} in info is {info[key]!r}, no number")
        return float(value.item())


def _float_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    if is_leaf(spec):
        return {"type": "float32", "dim": spec["dim"]}
    return {key: _float_spec(part) for key, part in spec.items()}
