"""A VectorEnv as environments of several agents: one policy plays all of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session.nest import Nest
from surreal_like.data.episodes import EpisodeCounter, EpisodeSummary, ended
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.data.rows import Rows
from surreal_like.env.environment import Info, VectorEnv
from surreal_like.env.multi_agent_vector import JointStep


class WholeVector:
    """Gives each step of a VectorEnv as the rows of one policy, which are all streams in order.

    Episodes are counted here, by their raw rewards. Attributes and methods are those of
    :class:`surreal_like.env.multi_agent_vector.JointVector`.

    Args:
        env: the environments.
        policy: name of the policy.

    Attributes:
        env: the same.
    """

    def __init__(self, env: VectorEnv, policy: str = DEFAULT_POLICY) -> None:
        self.env, self._policy = env, policy
        self.num_envs = env.num_envs
        self.num_streams = {policy: env.num_envs}
        self.metadata = env.metadata
        self._counter = EpisodeCounter(env.num_envs)
        self._streams = np.arange(env.num_envs)
        self._all = np.ones(env.num_envs, np.bool_)
        # Streams whose next row is the first of an episode.
        self._ended = self._all

    @property
    def env_steps(self) -> int:
        """Steps of all environments so far; a first row is none."""
        return self._counter.env_steps

    @property
    def env_restarts(self) -> int:
        """Number of environments that were made anew after an error."""
        return self.env.env_restarts

    def reset(self) -> JointStep:
        """Starts a new episode in every environment."""
        obs, _ = self.env.reset()
        self._counter.reset()
        self._ended = no = ~self._all
        return self._rows(obs, np.zeros(self.num_envs, np.float32), no, no, self._all, [])

    def step(self, actions: Mapping[str, npt.NDArray[Any]]) -> JointStep:
        """Makes one step of every environment.

        Args:
            actions: the action of each stream, ``[N, ...]``, by the name of the policy.
        """
        obs, reward, terminated, truncated, info = self.env.step(actions[self._policy])
        last, begun = terminated | truncated, "final_obs" in info
        first = last if begun else self._ended
        self._ended = ~self._all if begun else last
        episodes = self._count(reward, last, info, begun=begun)
        return self._rows(obs, reward, terminated, truncated, first, episodes)

    def _count(
        self, reward: npt.NDArray[Any], last: npt.NDArray[np.bool_], info: Info, *, begun: bool
    ) -> list[tuple[int, EpisodeSummary]]:
        finished = self._counter.update(
            info.get("raw_reward", reward),
            last,
            info.get("metrics"),
            info.get("life_lost"),
            begun=begun,
        )
        if not finished:
            return []
        return list(zip(np.flatnonzero(ended(last, info)).tolist(), finished, strict=True))

    def _rows(
        self,
        obs: Nest,
        reward: npt.NDArray[Any],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        first: npt.NDArray[np.bool_],
        episodes: list[tuple[int, EpisodeSummary]],
    ) -> JointStep:
        steps = (~first).astype(np.int64)
        rows = Rows(self._streams, obs, reward, terminated, truncated, first, steps)
        return JointStep({self._policy: rows}, episodes)

    def render(self) -> Any:
        """Returns an image of the first environment, or None."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()
