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
from surreal_like.env.environment import Env, Info, VectorEnv, VectorStep, VectorWrapper
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
        self._stacks = FrameStacks(size)
        self._ended = np.ones(self.num_envs, np.bool_)

    def reset(self) -> tuple[Nest, Info]:
        """Resets all streams."""
        obs, info = self.env.reset()
        stacks = self._stacks.push(obs, np.ones(self.num_envs, np.bool_))
        self._ended = np.zeros(self.num_envs, np.bool_)
        return stacks, info

    def step(self, actions: Any) -> VectorStep:
        """Steps; returned arrays are not changed later."""
        obs, reward, terminated, truncated, info = self.env.step(actions)
        ended = terminated | truncated
        # Where the step has begun the next episode, the observation is its first one.
        stacks = self._stacks.push(obs, ended if self.resets_in_step else self._ended)
        self._ended = ended
        return stacks, reward, terminated, truncated, info


class FrameStacks:
    """Stacks of the newest frames of each stream.

    Args:
        size: frames in a stack, k.
        num_streams: number of streams, where :meth:`push` is given some of them.
    """

    def __init__(self, size: int, num_streams: int = 0) -> None:
        self._size, self._num_streams = size, num_streams
        self._stacks: dict[str, npt.NDArray[Any]] = {}

    def push(self, obs: Nest, first: Flags, streams: npt.NDArray[np.int64] | None = None) -> Nest:
        """Returns the stacks with their newest frames; they are not changed later.

        Args:
            obs: nest of frames ``[n, ...]``.
            first: True where an episode begins: its first frame fills all k places, ``[n]``.
            streams: numbers of the streams, ``[n]``; None: the frames are those of all, in order.
        """
        if type(obs) is np.ndarray:
            return self._push("", obs, first, streams)
        flat = nest.flatten(obs).items()
        return nest.unflatten({path: self._push(path, each, first, streams) for path, each in flat})

    def _push(
        self,
        path: str,
        frames: npt.NDArray[Any],
        first: Flags,
        streams: npt.NDArray[np.int64] | None,
    ) -> npt.NDArray[Any]:
        stacks = self._stacks.get(path)
        if stacks is None:
            count = len(frames) if streams is None else self._num_streams
            stacks = np.zeros((count, self._size, *frames.shape[1:]), frames.dtype)
            self._stacks[path] = stacks
        if streams is None:
            newest = self._stacks[path] = pushed(stacks, frames, first)
        else:
            newest = stacks[streams] = pushed(stacks[streams], frames, first)
        return newest


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
