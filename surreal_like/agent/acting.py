"""Lets an agent act; agents, evaluators, policies, rollout workers and gateways all use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session import nest
from session.nest import Array, Nest
from session.wire.one_way_sockets import Socket
from surreal_like.agent.agent import Agent
from surreal_like.data.casts import unpack
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.parameters import Parameters
from surreal_like.data.rows import Rows
from surreal_like.data.spec import parse_action_spec
from surreal_like.network.flat import to_tensor
from surreal_like.network.recurrent import reads_rewards
from surreal_like.transform.reward import RewardTransform, make_reward_transform

Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
Rewards = npt.NDArray[np.float32]

Ended = Sequence[tuple[int, EpisodeSummary]]

_HOOKS = ("pre_action", "post_action", "pre_episode", "post_episode")


class Acting:
    """Lets an agent act: sets what :meth:`Agent.act` reads, and calls the agent's hooks.

    After each answer the caller steps its environments, and calls :meth:`end_step`.

    Args:
        agent: acts. Another one of the same class may take its place between two steps.

    Attributes:
        state: recurrent state of the streams, ``[N, ...]``; None without a memory, and before the
            first answer. A caller may set it.
        hooked: True if the agent overrides a hook of its steps.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.state: Any = None
        self.hooked = any(getattr(type(agent), each) is not getattr(Agent, each) for each in _HOOKS)
        self._action_dtype = parse_action_spec(agent.env_config.action_spec).array.dtype
        self._all: Indices = np.arange(1)
        self._inference = torch.inference_mode()
        self._transform: RewardTransform | None = None
        if reads_rewards(agent.learner_config):
            self._transform = make_reward_transform(agent.learner_config.algo)
        # Arguments of `post_action` after the step.
        self._step: tuple[Any, Any] | None = None

    def act(
        self,
        obs: Nest,
        first: Flags,
        streams: Indices | None = None,
        rewards: Rewards | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Returns the actions ``[n, ...]``, and the extras as columns, see :func:`unpack`.

        Raises:
            DataError: the dtype of the actions is of another kind.
        """
        return unpack(self.answer(obs, first, streams, rewards), self._action_dtype)

    def answer(
        self,
        obs: Nest,
        first: Flags,
        streams: Indices | None = None,
        rewards: Rewards | None = None,
    ) -> Any:
        """Returns what the agent's ``act`` returns.

        Args:
            obs: nest of arrays ``[n, ...]`` that matches the observation spec.
            first: True where an episode begins, bool ``[n]``.
            streams: numbers of the streams of the rows, int64 ``[n]``, where :attr:`state` has
                those of more streams; None: the rows are all streams, in order.
            rewards: rewards of the environment before the rows, float32 ``[n]``; None: before them
                nothing was done.
        """
        agent, hooked = self.agent, self.hooked
        if streams is None and len(first) != len(self._all):
            self._all = np.arange(len(first))
        agent.first, agent.streams = first, self._all if streams is None else streams
        if self._transform is not None:
            agent.prev_reward = self._rewards_before(rewards, first)
        if agent.acts_on_arrays and not hooked:
            return agent.act_on_arrays(obs)
        with self._inference:
            agent.state = self.state if streams is None else self._part_of_state(streams)
            tensors = torch.from_numpy(obs) if type(obs) is np.ndarray else to_tensor(obs)
            if hooked:
                self._begin_step(tensors)
            answer = agent.act(tensors)
            if streams is None:
                self.state = agent.state
            else:
                self._keep_part_of_state(streams)
        if hooked:
            self._step = tensors, answer
        return answer

    def end_step(self, episodes: Sequence[Mapping[str, Any]] = ()) -> None:
        """Calls the hooks after a step.

        Args:
            episodes: summaries of the episodes that the step ended.
        """
        if self._step is not None:
            self.agent.post_action(*self._step)
            self._step = None
        self.end_episodes(episodes)

    def end_episodes(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Calls the hook for episodes that ended, if there are any."""
        if self.hooked and episodes:
            self.agent.post_episode(episodes)

    def _rewards_before(self, rewards: Rewards | None, first: Flags) -> torch.Tensor:
        if rewards is None:
            return torch.zeros(len(first))
        assert self._transform is not None  # the agent reads rewards
        # A copy: a function of the user's may change its argument.
        changed = self._transform(np.array(rewards, np.float32))
        return torch.from_numpy(np.where(first, np.float32(0.0), changed))

    def _begin_step(self, obs: Any) -> None:
        agent = self.agent
        if agent.first.any():
            agent.pre_episode(agent.streams[agent.first])
        agent.pre_action(obs)

    def _part_of_state(self, streams: Indices) -> Any:
        index = torch.from_numpy(streams)
        return None if self.state is None else nest.map(lambda leaf: leaf[index], self.state)

    def _keep_part_of_state(self, streams: Indices) -> None:
        if self.state is not None:
            index, part = torch.from_numpy(streams), self.agent.state
            nest.map(lambda leaf, new: leaf.index_copy_(0, index, new), self.state, part)


class ActingPolicy:
    """Acts for the agents that a policy plays.

    Args:
        policy: name of the policy.
        acting: lets its agent act.

    Attributes:
        policy, acting: the same.
        loaded: parameters of a learner that it has loaded itself; None: it has none.
    """

    def __init__(self, policy: str, acting: Acting) -> None:
        self.policy, self.acting = policy, acting
        self.loaded: Parameters | None = None
        self._streams = 0

    @property
    def ready(self) -> bool:
        """True once it has parameters, or can load some."""
        return True

    @property
    def final(self) -> bool:
        """True unless it waits for the last parameters of its learner."""
        return True

    def fetch(self) -> None:
        """Fetches what is new, without waiting."""

    def load(self) -> None:
        """Loads what has been fetched, for a new evaluation."""

    def begin(self, streams: int) -> None:
        """Begins the episodes of all streams."""
        self._streams = streams
        self.acting.state = self.acting.agent.initial_state(streams)

    def act(self, rows: Rows) -> npt.NDArray[Any]:
        """Returns the actions of rows, ``[n, ...]``."""
        actions: npt.NDArray[Any] = self.acting.act(
            rows.obs, rows.first, rows.streams, rows.reward
        )[0]
        return actions

    def end_step(self, episodes: Ended) -> None:
        """Ends a step.

        Args:
            episodes: number of the environment and summary of each episode that has ended; it may
                add metrics.
        """
        self.acting.end_step([summary for _, summary in episodes])

    def sockets(self) -> list[Socket]:
        """Returns the sockets by which something may come."""
        return []
