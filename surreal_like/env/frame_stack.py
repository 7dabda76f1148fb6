"""Frame stacks for acting, while single frames go to replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.frames import stack_size, stack_spec
from surreal_like.env.base import Env, Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.vector import as_vector

Flags = npt.NDArray[np.bool_]


class FrameStack(VectorWrapper):
    """Returns the newest frames of each stream as a stack, ``[N, k, ...]``, the oldest first.

    At the beginning of an episode the first frame fills all k places. It goes around an
    ``ExpSenderWrapper``, which then sends each frame once; replay makes the same stacks.

    Args:
        env: an Env (N = 1) or a VectorEnv; of a nest of observations each part is stacked.
        size: frames in a stack, k.
    """

    def __init__(self, env: Env | VectorEnv, size: int) -> None:
        super().__init__(as_vector(env))
        if size < 1:
            raise ConfigError(f"a stack of {size} frames: expected 1 or more")
        self.obs_spec = stack_spec(self.env.obs_spec, size)
        self._size = size
        self._stacks: dict[str, npt.NDArray[Any]] = {}
        self._ended = np.ones(self.num_envs, np.bool_)

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams."""
        obs, info = self.env.reset()
        stacks = self._pushed(obs, np.ones(self.num_envs, np.bool_))
        self._ended = np.zeros(self.num_envs, np.bool_)
        return stacks, info

    def step(self, actions: Any) -> VectorStep:
        """Steps; returned arrays are not changed later."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = terminated | truncated
        # Where the step has begun the next episode, the observation is its first one.
        stacks = self._pushed(obs, ended if self.resets_in_step else self._ended)
        self._ended = ended
        return stacks, reward, terminated, truncated, info

    def _pushed(self, obs: Nest, first: Flags) -> Nest:
        if type(obs) is np.ndarray:
            return self._push("", obs, first)
        pushed = {path: self._push(path, leaf, first) for path, leaf in nest.flatten(obs).items()}
        return nest.unflatten(pushed)

    def _push(self, path: str, frames: npt.NDArray[Any], first: Flags) -> npt.NDArray[Any]:
        """Returns the stacks with the newest frames; new episodes have no other frames."""
        if path not in self._stacks:
            self._stacks[path] = np.repeat(frames[:, None], self._size, axis=1)
        stacks = self._stacks[path] = pushed(self._stacks[path], frames, first)
        return stacks


def pushed(stacks: npt.NDArray[Any], frames: npt.NDArray[Any], first: Flags) -> npt.NDArray[Any]:
    """Returns stacks with their newest frames.

    Args:
        stacks: ``[N, k, ...]``, unchanged.
        frames: ``[N, ...]``.
        first: True where an episode begins: its first frame fills all k places, ``[N]``.
    """
    newest = frames[:, None]
    if first.all():
        return np.repeat(newest, stacks.shape[1], axis=1)
    found: npt.NDArray[Any] = np.concatenate((stacks[:, 1:], newest), axis=1)
    if first.any():
        found[first] = newest[first]
    return found


def stack_frames(env: VectorEnv, env_config: Mapping[str, Any]) -> VectorEnv:
    """Returns the environment for an agent, with the stacks of ``env_config.frame_stack``."""
    size = stack_size(env_config)
    return env if size == 1 else FrameStack(env, size)
