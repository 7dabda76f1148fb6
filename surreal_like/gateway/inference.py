"""Inference for the streams of many sessions in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session import nest
from session.config import Config
from session.nest import Nest
from surreal_like.agent.base import Agent
from surreal_like.data.frames import stack_size
from surreal_like.data.spec import parse_action_spec
from surreal_like.env.frame_stack import pushed
from surreal_like.experience.chunk_episodes import Flags
from surreal_like.experience.writer import converted, extra_columns
from surreal_like.gateway.slots import Advice
from surreal_like.network.tensors import to_tensor

Indices = npt.NDArray[np.int64]


class Inference:
    """Calls an agent for any of its streams; keeps frames and recurrent state by stream.

    Args:
        agent: acts; only here.
        env_config: of the experiment.
        num_streams: number of all streams.
    """

    def __init__(self, agent: Agent, env_config: Config, num_streams: int) -> None:
        self.agent = agent
        self._action_dtype = parse_action_spec(env_config.action_spec).array.dtype
        self._frames = _Frames(stack_size(env_config), num_streams)
        self._state: Any = None
        self._num_streams = num_streams
        self._mode = torch.inference_mode()

    def act(self, streams: Indices, obs: Nest, first: Flags) -> Advice:
        """Returns the actions of some streams.

        Args:
            streams: their numbers, ``[n]``.
            obs: single frames, nest of arrays ``[n, ...]``.
            first: True where an episode begins, ``[n]``.
        """
        agent = self.agent
        agent.first, agent.streams = first, streams
        with self._mode:
            self._gather(streams)
            answer = agent.act(to_tensor(self._frames.push(streams, obs, first)))
            self._scatter(streams)
        actions, extras = answer if type(answer) is tuple else (answer, None)
        # The agent may reuse its arrays before the rows are written.
        actions = converted(actions, self._action_dtype).copy()
        return Advice(actions, extra_columns(extras), agent.version)

    def _gather(self, streams: Indices) -> None:
        if self._state is None:
            self._state = self.agent.initial_state(self._num_streams)
        if self._state is not None:
            index = torch.from_numpy(streams)
            self.agent.state = nest.map(lambda leaf: leaf[index], self._state)

    def _scatter(self, streams: Indices) -> None:
        if self._state is not None:
            index = torch.from_numpy(streams)
            nest.map(
                lambda all_, new: all_.index_copy_(0, index, new), self._state, self.agent.state
            )


class _Frames:
    """Stacks of the newest frames of each stream."""

    def __init__(self, size: int, num_streams: int) -> None:
        self._size, self._num_streams = size, num_streams
        self._stacks: dict[str, npt.NDArray[Any]] = {}

    def push(self, streams: Indices, obs: Nest, first: Flags) -> Nest:
        """Returns the stacks of some streams with their newest frames."""
        if self._size == 1:
            return obs
        if type(obs) is np.ndarray:
            return self._push("", streams, obs, first)
        flat = {
            path: self._push(path, streams, leaf, first) for path, leaf in nest.flatten(obs).items()
        }
        return nest.unflatten(flat)

    def _push(
        self, path: str, streams: Indices, frames: npt.NDArray[Any], first: Flags
    ) -> npt.NDArray[Any]:
        stacks = self._stacks.get(path)
        if stacks is None:
            shape = (self._num_streams, self._size, *frames.shape[1:])
            stacks = self._stacks[path] = np.zeros(shape, frames.dtype)
        newest = stacks[streams] = pushed(stacks[streams], frames, first)
        return newest


def joined(parts: Sequence[Nest]) -> Nest:
    """Returns nests of arrays ``[N, ...]`` as one of ``[n, ...]``."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return nest.map(lambda *leaves: np.concatenate(leaves), *parts)
