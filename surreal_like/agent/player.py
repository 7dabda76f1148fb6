"""Lets an agent play the episodes of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from session.config import Config
from surreal_like.agent.acting import Acting
from surreal_like.agent.evaluation import Evaluation
from surreal_like.data.parameters import Parameters
from surreal_like.env.base import Pulse, VectorEnv, no_pulse
from surreal_like.env.feed import RunFeed
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env

MakePlayer = Callable[..., "Player"]


class Player:
    """Steps the environments of an evaluation.

    Args:
        acting: lets the agent act.
        env: the environments.

    Attributes:
        env: the same.
        num_envs: number of environments.
    """

    def __init__(self, acting: Acting, env: VectorEnv) -> None:
        self.num_envs = env.num_envs
        self._acting, self.env = acting, env
        self._obs: Any = None
        self._rewards: Any = None

    @property
    def ready(self) -> bool:
        """True once all other policies that play have parameters."""
        return True

    @property
    def final(self) -> bool:
        """True once all other policies that play have the last parameters of their learners."""
        return True

    def fetch(self) -> None:
        """Fetches parameters of other policies that play."""

    def load(self) -> None:
        """Loads the newest parameters of other policies that play, for a new evaluation."""

    @property
    def loaded(self) -> dict[str, Parameters]:
        """Policy -> loaded parameters, of other policies that play."""
        return {}

    def reset(self) -> None:
        """Starts a new episode in every environment."""
        (self._obs, _), self._rewards = self.env.reset(), None

    def step(self, evaluation: Evaluation) -> None:
        """Makes one step of all environments, and counts it."""
        actions, _ = self._acting.act(self._obs, evaluation.first, rewards=self._rewards)
        self._obs, reward, terminated, truncated, info = self.env.step(actions)
        self._rewards = reward
        self._acting.end_step(evaluation.step(reward, terminated, truncated, info))

    @property
    def env_restarts(self) -> int:
        """Number of environments that were made anew after an error."""
        return self.env.env_restarts

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the environment."""
        return self.env.metadata

    def render(self) -> Any:
        """Returns an image of the first environment, or None."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()


def make_player(
    acting: Acting,
    config: Config,
    *,
    num_envs: int,
    seed: int,
    pulse: Pulse = no_pulse,
    feed: RunFeed | None = None,
) -> Player:
    """Builds the environments of an evaluation.

    Args:
        acting: lets the agent act.
        config: the resolved experiment.
        num_envs: number of environments.
        seed: their seed.
        pulse: called between them.
        feed: progress and task of the run.
    """
    single = make_vector_env(
        config.env_config,
        num_envs=num_envs,
        seed=seed,
        evaluation=True,
        pulse=pulse,
        feed=feed,
    )
    return Player(acting, stack_frames(single, config.env_config))
