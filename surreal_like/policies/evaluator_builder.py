"""Builds what plays the episodes of evaluations, and the service of an evaluator."""

from __future__ import annotations

from collections.abc import Sequence

from session.config import Config
from session.process.context import Context
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.agent import Agent
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.fetcher import Fetcher, agent_for
from surreal_like.agent.loop import make_agent
from surreal_like.agent.player import Player
from surreal_like.agent.run_link import AgentLink
from surreal_like.data.parameters import Parameters
from surreal_like.env.environment import Pulse, no_pulse
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.multi_agent_vector import make_joint_vector
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector import make_vector_env
from surreal_like.env.whole_vector import WholeVector
from surreal_like.policies.assignment import PolicyAssignment, parts_of
from surreal_like.policies.config import policy_configs
from surreal_like.policies.fixed_policies import Found, make_opponents

# Time between two questions for newer parameters of another policy [s].
_POLL_SECONDS = 0.1


class NewestOpponent(ActingPolicy):
    """Plays with the newest parameters of a policy that the process does not judge.

    Args:
        context: context of the process.
        agent: agent in the evaluator's mode; not yet attached.
        policy: name of its policy.

    """

    def __init__(self, context: Context, agent: Agent, policy: str) -> None:
        super().__init__(policy, Acting(agent))
        self._context = context
        link = AgentLink(context, policy=policy)
        agent.attach(link)
        self._fetcher = Fetcher(
            link.client, context.clock, mode="step", interval_seconds=_POLL_SECONDS
        )
        # Newer ones than those that it plays with.
        self._newest: Parameters | None = None

    @property
    def ready(self) -> bool:
        return self._newest is not None or self.loaded is not None

    @property
    def final(self) -> bool:
        newest = self._newest or self.loaded
        return newest is not None and newest.final

    def fetch(self) -> None:
        self._newest = self._fetcher.tick() or self._newest
        if self._fetcher.idle:
            self._fetcher.want()

    def load(self) -> None:
        newest, self._newest = self._newest, None
        if newest is not None:
            self.loaded = newest
            agent = agent_for(self._context, self.acting.agent, newest, self.policy)
            self.acting.agent = agent
            agent.load(newest)


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
    companions = [NewestOpponent(context, agents[name], name) for name in others]

    def make(
        acting: Acting, config: Config, *, num_envs: int, seed: int, pulse: Pulse, feed: TaskFeed
    ) -> Player:
        opponents = make_opponents(
            config,
            found,
            context,
            num_envs=num_envs,
            seed=seed,
            evaluation=True,
        )
        policies = [ActingPolicy(first, acting), *companions, *opponents]
        return make_player(policies, config, num_envs=num_envs, seed=seed, pulse=pulse, feed=feed)

    return EvaluatorService(context, agents[first], make, first)


def make_player(
    policies: Sequence[ActingPolicy],
    config: Config,
    *,
    num_envs: int,
    seed: int,
    evaluation: bool = True,
    pulse: Pulse = no_pulse,
    feed: TaskFeed | None = None,
) -> Player:
    """Builds the environments of an evaluation, or those of training.

    Args:
        policies: all policies that may play.
        config: the resolved experiment.
        num_envs: number of environments.
        seed: seed of the environments.
        evaluation: False: the environments are those of training.
        pulse: called between them.
        feed: progress and task of the run.
    """
    env = config.env_config
    parts = parts_of(config, evaluation=evaluation)
    if not parts:
        single = make_vector_env(
            env, num_envs=num_envs, seed=seed, evaluation=evaluation, pulse=pulse, feed=feed
        )
        return Player(policies, WholeVector(stack_frames(single, env), policies[0].policy))
    joint = make_joint_vector(
        env,
        parts,
        num_envs=num_envs,
        seed=seed,
        assign=PolicyAssignment(config, seed, evaluation=evaluation).assign,
        evaluation=evaluation,
        pulse=pulse,
        feed=feed,
    )
    return Player(policies, joint)
