"""Lets the agents of all policies play the joint episodes of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from session.config import Config
from session.process.context import Context
from surreal_like.agent.acting import Acting
from surreal_like.agent.evaluation import Evaluation
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.loop import make_agent
from surreal_like.agent.player import MakePlayer, Player, make_player
from surreal_like.data.parameters import Parameters
from surreal_like.env.base import Pulse, no_pulse
from surreal_like.env.feed import RunFeed
from surreal_like.env.joint_vector import JointStep, JointVector, make_joint_vector
from surreal_like.policies.acting import ActingPolicy, Companion, PublishedSnapshots
from surreal_like.policies.config import policies_of, policy_configs
from surreal_like.policies.opponents import Found, make_opponents
from surreal_like.policies.seats import Seats, parts_of


class JointPlayer(Player):
    """Steps environments of several agents.

    Args:
        policies: those that play.
        env: the environments.
    """

    def __init__(self, policies: Sequence[ActingPolicy], env: JointVector) -> None:
        self.num_envs = env.num_envs
        self._policies = {each.policy: each for each in policies if each.policy in env.num_streams}
        self._joint = env
        self._newest = JointStep({}, [])
        self._begin()

    def _begin(self) -> None:
        for name, policy in self._policies.items():
            policy.begin(self._joint.num_streams[name])

    @property
    def ready(self) -> bool:
        """True once all policies have parameters."""
        return all(each.ready for each in self._policies.values())

    @property
    def final(self) -> bool:
        """True once all companions have the last parameters of their learners."""
        return all(each.final for each in self._companions)

    @property
    def _companions(self) -> list[Companion]:
        return [each for each in self._policies.values() if isinstance(each, Companion)]

    def fetch(self) -> None:
        """Fetches the parameters of the companions, and snapshots."""
        for each in self._policies.values():
            each.fetch()

    def load(self) -> None:
        """Loads the newest parameters of the companions."""
        for each in self._policies.values():
            each.load()

    @property
    def loaded(self) -> dict[str, Parameters]:
        """Policy -> parameters of the companions."""
        found = {each.policy: each.loaded for each in self._companions}
        return {policy: each for policy, each in found.items() if each is not None}

    def reset(self) -> None:
        """Starts a new episode in every environment."""
        self._begin()
        self._newest = self._joint.reset()

    def step(self, evaluation: Evaluation) -> None:
        """Makes one step of all environments, and counts it."""
        rows = self._newest.rows.items()
        actions = {name: self._policies[name].act(each) for name, each in rows}
        steps = self._joint.env_steps
        self._newest = self._joint.step(actions)
        # First: a policy may add metrics to the episodes.
        for policy in self._policies.values():
            policy.end_step(self._newest.episodes)
        evaluation.count(self._newest.episodes, self._joint.env_steps - steps)

    @property
    def env_restarts(self) -> int:
        """Number of environments that were made anew after an error."""
        return self._joint.env_restarts

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the environment."""
        return self._joint.metadata

    def render(self) -> Any:
        """Returns an image of the first environment, or None."""
        return self._joint.render()

    def close(self) -> None:
        """Closes the environments."""
        self._joint.close()


def make_evaluator_service(context: Context, found: Found) -> EvaluatorService:
    """Builds the service of an evaluator process.

    Args:
        context: context of the process.
        found: finds algorithms and trained policies.
    """
    config = context.config
    modes = config.session_config.evaluator.mode
    mode = modes[context.component.index % len(modes)]
    agents = {
        name: make_agent(context, found.algorithm(own).agent, mode, config=own)
        for name, own in policy_configs(config).items()
    }
    first, *others = agents
    make: MakePlayer = make_player
    if policies_of(config):
        companions = [Companion(context, agents[name], name) for name in others]
        make = partial(_make_player, context, found, first, companions)
    return EvaluatorService(context, agents[first], make, first)


def _make_player(
    context: Context,
    found: Found,
    first: str,
    companions: Sequence[Companion],
    acting: Acting,
    config: Config,
    *,
    num_envs: int,
    **given: Any,
) -> Player:
    opponents = make_opponents(
        config,
        found,
        partial(PublishedSnapshots, context),
        num_envs=num_envs,
        seed=context.seed,
        evaluation=True,
    )
    policies = [ActingPolicy(first, acting), *companions, *opponents]
    return make_joint_player(policies, config, num_envs=num_envs, **given)


def make_joint_player(
    policies: Sequence[ActingPolicy],
    config: Config,
    *,
    num_envs: int,
    seed: int,
    pulse: Pulse = no_pulse,
    feed: RunFeed | None = None,
) -> JointPlayer:
    """Builds the environments of an evaluation, of several agents.

    Args:
        policies: all policies that may play.
        config: the resolved experiment.
        num_envs: number of environments.
        seed: seed of the environments.
        pulse: called between them.
        feed: progress and task of the run.
    """
    env = make_joint_vector(
        config.env_config,
        parts_of(config, evaluation=True),
        num_envs=num_envs,
        seed=seed,
        deal=Seats(config, seed, evaluation=True).deal,
        evaluation=True,
        pulse=pulse,
        feed=feed,
    )
    return JointPlayer(policies, env)
