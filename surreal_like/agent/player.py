"""Lets policies play the episodes of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surreal_like.agent.acting import ActingPolicy
from surreal_like.agent.evaluation import Evaluation
from surreal_like.data.parameters import Parameters
from surreal_like.env.multi_agent_vector import JointStep, JointVector
from surreal_like.env.whole_vector import WholeVector

MakePlayer = Callable[..., "Player"]


class Player:
    """Steps the environments of an evaluation.

    Args:
        policies: those that may play.
        env: the environments.

    Attributes:
        env: the same.
        num_envs: number of environments.
    """

    def __init__(self, policies: Sequence[ActingPolicy], env: JointVector | WholeVector) -> None:
        self.num_envs, self.env = env.num_envs, env
        self._policies = {each.policy: each for each in policies if each.policy in env.num_streams}
        self._newest = JointStep({}, [])
        self._begin()

    def _begin(self) -> None:
        for name, policy in self._policies.items():
            policy.begin(self.env.num_streams[name])

    @property
    def ready(self) -> bool:
        """True once all policies have parameters."""
        return all(each.ready for each in self._policies.values())

    @property
    def final(self) -> bool:
        """True once all policies have the last parameters of their learners."""
        return all(each.final for each in self._policies.values())

    def fetch(self) -> None:
        """Fetches parameters of policies that load their own, without waiting."""
        for each in self._policies.values():
            each.fetch()

    def load(self) -> None:
        """Loads what has been fetched, for a new evaluation."""
        for each in self._policies.values():
            each.load()

    @property
    def loaded(self) -> dict[str, Parameters]:
        """Policy -> parameters, of policies that load their own from a learner."""
        found = {each.policy: each.loaded for each in self._policies.values()}
        return {policy: each for policy, each in found.items() if each is not None}

    def reset(self) -> None:
        """Starts a new episode in every environment."""
        self._begin()
        self._newest = self.env.reset()

    def step(self, evaluation: Evaluation) -> None:
        """Makes one step of all environments, and counts it."""
        rows = self._newest.rows.items()
        actions = {name: self._policies[name].act(each) for name, each in rows}
        steps = self.env.env_steps
        self._newest = self.env.step(actions)
        # First: a policy may add metrics to the episodes.
        for policy in self._policies.values():
            policy.end_step(self._newest.episodes)
        evaluation.count(self._newest.episodes, self.env.env_steps - steps)

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()
