"""Gymnasium's own vectorised environments as a VectorEnv."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode

from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.casts import cast
from surreal_like.data.masks import has_mask
from surreal_like.data.spec import compare
from surreal_like.env.actions import ActionValidator, Outside
from surreal_like.env.base import Info, VectorEnv, VectorStep
from surreal_like.env.batching import InfoBatch, step_rewards
from surreal_like.env.gym_adapter import PREFIX, find_gym_spec, native_vector
from surreal_like.env.registry import (
    derive_specs,
    env_args,
    given_frame_spec,
    is_wrapped,
)
from surreal_like.env.spaces import (
    action_bounds,
    action_writer,
    observation_reader,
    specs_from_spaces,
)
from surreal_like.env.wrappers import horizon
from surreal_like.errors import SpecError


def make_native(
    env_config: Mapping[str, Any], *, num_envs: int, seed: int, evaluation: bool = False
) -> NativeVector | None:
    """Builds the native implementation; returns None where N single Envs must be stepped.

    These are environments without one, with wrappers or action repeat, with a horizon or arguments
    that its constructor does not take, with masks of actions, or with other specs than one Env.
    Raises ConfigError, naming the mode, if it resets in another mode than the next step.
    """
    name = str(env_config.get("env_name"))
    if not name.startswith(PREFIX) or is_wrapped(env_config, evaluation):
        return None
    arguments = env_args(env_config, evaluation)
    spec = find_gym_spec(name, arguments)
    with_limit = _with_limit(spec, arguments, horizon(env_config.get("limit_episode_length")))
    if with_limit is None:
        return None
    gym_env = native_vector(spec, num_envs, with_limit)
    refuse_other_resets(name, gym_env)
    outside: Outside = "clip" if env_config.get("clip_action", True) else "refuse"
    keys = tuple(env_config.get("info_keys") or ())
    vector = NativeVector(gym_env, seed=seed, outside=outside, info_keys=keys)
    # Single environments have their masks checked.
    if has_mask(vector.obs_spec) or not _same_as_one(vector, env_config):
        vector.close()
        return None
    return vector


def refuse_other_resets(name: str, gym_env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
    """Raises ConfigError unless a stream is reset by the step after its last."""
    mode = gym_env.metadata.get("autoreset_mode")
    if mode in (AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value):
        return
    gym_env.close()
    shown = mode.value if isinstance(mode, AutoresetMode) else mode
    raise ConfigError(
        f"env_config.vector: the native vector code of {name} resets in mode {shown}, "
        f"expected {AutoresetMode.NEXT_STEP.value}; write vector: sync"
    )


class NativeVector(VectorEnv):
    """A vectorised environment of Gymnasium that resets at the step after the last.

    outside: as in ActionValidator. `info` has the keys `info_keys`; 0 where missing.
    """

    def __init__(
        self,
        gym_env: gymnasium.vector.VectorEnv[Any, Any, Any],
        *,
        seed: int,
        outside: Outside = "clip",
        info_keys: tuple[str, ...] = (),
    ) -> None:
        self.gym_env = gym_env
        self.num_envs = gym_env.num_envs
        space, actions = gym_env.single_observation_space, gym_env.single_action_space
        self.obs_spec, self.action_spec = specs_from_spaces(space, actions)
        self.metadata = gym_env.metadata
        self._read = observation_reader(space)
        self._write = action_writer(actions)
        self._door = ActionValidator(
            self.action_spec, (self.num_envs,), outside=outside, bounds=action_bounds(actions)
        )
        self._info_keys = info_keys
        self._infos = InfoBatch(info_keys, self.num_envs)
        self._seed: int | None = seed
        self._ended = np.zeros(self.num_envs, np.bool_)

    def reset(self) -> tuple[Nest, Info]:
        """Resets every stream; the first time with the seed."""
        obs, info = self.gym_env.reset(seed=self._seed)
        self._seed = None
        self._ended = np.zeros(self.num_envs, np.bool_)
        return self._read(obs), self._info(info)

    def step(self, actions: npt.NDArray[Any]) -> VectorStep:
        """Steps every stream."""
        ended = self._ended
        written = self._write(self._door(actions, ended))
        obs, reward, terminated, truncated, info = self.gym_env.step(written)
        # Some give the reward of the action that they ignored.
        rewards = step_rewards(reward, ended)
        terminations = cast("terminated", terminated, np.bool_, copy=True)
        truncations = cast("truncated", truncated, np.bool_, copy=True)
        self._ended = terminations | truncations
        return self._read(obs), rewards, terminations, truncations, self._info(info)

    def render(self) -> Any:
        images: Any = self.gym_env.render()
        return images[0] if images else None

    def close(self) -> None:
        """Closes the environment."""
        if not self.gym_env.closed:
            self.gym_env.close()

    def _info(self, info: Mapping[str, Any]) -> Info:
        """Returns the named keys; Gymnasium gives one array per key, over all streams."""
        if not self._info_keys:
            return {}
        keys = [key for key in self._info_keys if key in info]
        infos = [{key: info[key][stream] for key in keys} for stream in range(self.num_envs)]
        return self._infos(infos, np.zeros(self.num_envs, np.float32))


def _with_limit(
    spec: EnvSpec, arguments: Mapping[str, Any], limit: int | None
) -> dict[str, Any] | None:
    """Adds the horizon to the arguments; None if the native code does not take them."""
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return None
    own = arguments.get("max_episode_steps", spec.max_episode_steps)
    limits = [steps for steps in (own, limit) if steps is not None]
    if limits and min(limits) < 1:
        return None  # -1 removes the limit, which only single environments support
    complete = {**arguments, **({"max_episode_steps": min(limits)} if limits else {})}
    return complete if _takes(spec.vector_entry_point, {**spec.kwargs, **complete}) else None


def _takes(entry: Any, arguments: Mapping[str, Any]) -> bool:
    try:
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        inspect.signature(creator).bind(num_envs=1, **arguments)
    except (ImportError, TypeError):
        return False  # building single environments reports what is missing or wrong
    return True


def _same_as_one(vector: NativeVector, env_config: Mapping[str, Any]) -> bool:
    """True if the native code has the specs of the config, or else of a single environment."""
    obs_spec, action_spec = given_frame_spec(env_config), env_config.get("action_spec")
    if not obs_spec or not action_spec:
        obs_spec, action_spec = derive_specs({**env_config, "obs_spec": obs_spec, "frame_stack": 0})
    try:
        vector.obs_spec = compare(obs_spec, vector.obs_spec, "obs_spec")
        vector.action_spec = compare(action_spec, vector.action_spec, "action_spec")
    except SpecError:
        return False
    return True
