"""Builds the service of an agent process, also in an environment of several agents."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from session.config import Config
from session.process.context import Context
from surreal_like.agent.acting import ActingPolicy
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.agent.loop import (
    AgentService,
    Stepping,
    make_agent,
    make_single_service,
    prepare_agent,
)
from surreal_like.agent.policy_actor import PolicyActor
from surreal_like.agent.step_pulse import StepPulse
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.env.multi_agent_vector import JointStep, JointVector, make_joint_vector
from surreal_like.env.task_feed import TaskFeed
from surreal_like.experience.chunk_episodes import RECENT
from surreal_like.policies.assignment import PolicyAssignment, parts_of
from surreal_like.policies.config import policy_configs
from surreal_like.policies.fixed_policies import Found, make_opponents


def make_agent_service(context: Context, found: Found) -> AgentService:
    """Builds the service of an agent process.

    Args:
        context: context of the process.
        found: finds algorithms and trained policies.
    """
    config = context.config
    if not parts_of(config):
        return make_single_service(context, _make_agent(context, config, found))
    copies: int = config.env_config.num_envs
    pulse, feed = StepPulse(context, copies), TaskFeed(config.env_config)
    env = make_joint_vector(
        config.env_config,
        parts_of(config),
        num_envs=copies,
        seed=context.seed,
        assign=PolicyAssignment(config, context.seed).assign,
        pulse=pulse,
        feed=feed,
    )
    actors = []
    for name, own in policy_configs(config).items():
        agent = _make_agent(context, own, found)
        actor = PolicyActor(
            context,
            agent,
            name,
            streams=env.num_streams[name],
            obs_spec=agent.env_config.obs_spec,
            action_spec=agent.env_config.action_spec,
        )
        actor.acting.state = agent.initial_state(env.num_streams[name])
        actors.append(actor)
    opponents = make_opponents(
        config,
        found,
        context,
        num_envs=copies,
        seed=context.seed,
    )
    for each in opponents:
        each.begin(env.num_streams[each.policy])
    # The first policy owns the run: its parameters have the progress and the task.
    actors[0].feed = feed
    stepping = JointStepping(actors, opponents, env)
    return AgentService(context, actors, stepping, env, pulse, opponents)


def _make_agent(context: Context, config: Config, found: Found) -> Agent:
    algorithm = found.algorithm(config)
    agent = make_agent(context, algorithm.agent, AgentMode.training, config=config)
    return prepare_agent(context, agent, algorithm.learner)


class JointStepping(Stepping):
    """Steps environments of several agents.

    Args:
        actors: policies that learn, in their order in the config; the first one reports the
            episodes of all agents.
        opponents: policies that do not learn.
        env: the environments.
    """

    def __init__(
        self, actors: Sequence[PolicyActor], opponents: Sequence[ActingPolicy], env: JointVector
    ) -> None:
        self._actors, self._opponents, self._env = actors, opponents, env
        self._recent: deque[EpisodeSummary] = deque(maxlen=RECENT)
        self._newest = JointStep({}, [])

    def reset(self) -> None:
        self._observe(self._env.reset())

    def step(self) -> None:
        actions = {actor.policy: actor.act() for actor in self._actors if actor.has_rows}
        for opponent in self._opponents:
            rows = self._newest.rows.get(opponent.policy)
            if rows is not None:
                actions[opponent.policy] = opponent.act(rows)
        for actor in self._actors:
            if not actor.has_rows:
                actor.rows.pump_if_due()
        step: Callable[[Any], JointStep] = self._env.step
        for actor in self._actors:
            if actor.rows.traced:
                step = partial(actor.rows.time, step)
        self._observe(step(actions))

    def _observe(self, step: JointStep) -> None:
        self._newest = step
        # First: they may add metrics to the episodes.
        for opponent in self._opponents:
            opponent.end_step(step.episodes)
        episodes = [summary for _, summary in step.episodes]
        self._recent += episodes
        first, *_ = self._actors
        for actor in self._actors:
            rows = step.rows.get(actor.policy)
            actor.observe_some(rows, episodes, reports=actor is first)

    def pop_recent(self) -> list[EpisodeSummary]:
        recent = list(self._recent)
        self._recent.clear()
        return recent
