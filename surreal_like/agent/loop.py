"""Service of the agent process: act, step, send, load new parameters as they arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from session.addons.hooks import AGENT
from session.config import Config
from session.config.sections import sections_of
from session.process.context import Context
from session.process.service import IDLE_SECONDS
from session.wire.one_way_sockets import Socket
from surreal_like.agent.acting import ActingPolicy
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.agent.policy_actor import PolicyActor
from surreal_like.agent.sending import SendingService
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.env.environment import VectorEnv
from surreal_like.env.multi_agent_vector import JointVector
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector import make_vector_env
from surreal_like.replay.settings import is_aligned

# Rest of an agent that waits for an ack, which wakes it. Many agents that wait and wake more often
# than needed would take the processor from replay and learner.
WAITING_SECONDS = 0.2


class Stepping(ABC):
    """Steps the environments of a process with the actions of its policies."""

    @abstractmethod
    def reset(self) -> None:
        """Begins an episode in every environment."""

    @abstractmethod
    def step(self) -> None:
        """Lets the policies act, and makes one step of all environments."""

    @abstractmethod
    def pop_recent(self) -> list[EpisodeSummary]:
        """Returns summaries of episodes that ended since the last call, at most the newest 1000."""


class VectorStepping(Stepping):
    """Steps a VectorEnv, all of whose streams one policy plays.

    Args:
        actor: the policy.
        env: the environments.
    """

    def __init__(self, actor: PolicyActor, env: VectorEnv) -> None:
        self._actor, self._env = actor, env

    def reset(self) -> None:
        self._actor.begin(*self._env.reset())

    def step(self) -> None:
        actor, env = self._actor, self._env
        actions = actor.act()
        rows = actor.rows
        actor.observe(rows.time(env.step, actions) if rows.traced else env.step(actions))

    def pop_recent(self) -> list[EpisodeSummary]:
        return self._actor.rows.writer.pop_recent()


class AgentService(SendingService):
    """Acts in N environments until the run is over.

    It waits for the first parameters of every policy before its first step, and whenever too much
    sent experience of one of them is unacked.

    Args:
        context: context of this process.
        actors: policies that learn, in their order in the config; the first one owns the run.
        stepping: steps the environments with them.
        env: the environments, which the service closes.
        pulse: heartbeats of long steps, which the environments call.
        opponents: policies that do not learn.
    """

    def __init__(
        self,
        context: Context,
        actors: Sequence[PolicyActor],
        stepping: Stepping,
        env: VectorEnv | JointVector,
        pulse: StepPulse,
        opponents: Sequence[ActingPolicy] = (),
    ) -> None:
        super().__init__(context, actors)
        self._actors, self._opponents = actors, opponents
        self._stepping, self._env, self._pulse = stepping, env, pulse
        actors[0].more = self._restarts
        pulse.work = self._pump
        self._begun = self._leaves = False

    def tick(self) -> bool:
        """Makes one step of all environments, or continues leaving the run."""
        if self._leaves:
            for actor in self._actors:
                actor.leaving.tick()
            return False
        waits = False
        for actor in self._actors:
            if (parameters := actor.fetcher.tick() or actor.arrived) is not None:
                actor.take(parameters)
            waits |= not actor.window.ready or (
                actor.synchronous is not None and actor.synchronous.waits()
            )
        for opponent in self._opponents:
            opponent.fetch()
        if self._sending.fetcher.client.newest.final:
            self.drain()
            return True
        if not (self._begun or self._has_parameters):
            return False
        if waits:
            self._pump()
            return all(actor.may_go_on for actor in self._actors)
        self._pulse.begin()
        try:
            if not self._begun:
                self._begin()
            self._stepping.step()
        except StepAbandonedError:
            # A stop request ended a long step: `drain` is called next.
            return True
        self._steps += 1
        if self._pulse.began_at >= self._report_due.at and self._report_due():
            self._report_curves()
        return True

    @property
    def _has_parameters(self) -> bool:
        """True once all policies have parameters; asks for them."""
        found = [actor.ready for actor in self._actors]
        return all(found) and all(opponent.ready for opponent in self._opponents)

    def _begin(self) -> None:
        self._begun = True
        self._stepping.reset()
        self._context.event("acting", f"version {self._sending.agent.version}")

    def _pump(self) -> None:
        for actor in self._actors:
            actor.rows.pump()

    def _report_curves(self) -> None:
        self._report({}, self._stepping.pop_recent(), num_envs=self._env.num_envs)

    def drain(self) -> None:
        """Sends the collected experience first, and starts to wait for its acks."""
        if self._leaves:
            return
        self._leaves = True
        for actor in self._actors:
            actor.leave()
        if self._steps:
            # Reports the steps since the last report.
            self._report_curves()

    @property
    def env_restarts(self) -> int:
        return self._env.env_restarts

    @property
    def proven(self) -> bool:
        """True once its environments have completed enough steps to be trusted."""
        return self._pulse.proven

    @property
    def ready(self) -> bool:
        return not self._leaves

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of acks and of parameters."""
        own = [
            socket
            for each in self._actors
            for socket in (each.sender.socket, each.fetcher.client.socket)
        ]
        return own + [socket for each in self._opponents for socket in each.sockets()]

    def rest_seconds(self) -> float:
        """Longer while only an ack can let it go on [s]."""
        waits = not self._leaves and any(
            not actor.window.ready and actor.window.next_to_send() is None for actor in self._actors
        )
        return WAITING_SECONDS if waits else IDLE_SECONDS

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        oldest = max(actor.age_seconds for actor in self._actors)
        return {**super().status(), "policy_age_seconds": oldest}

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def make_single_service(context: Context, agent: Agent) -> AgentService:
    """Builds the service of an agent process whose environments one policy plays.

    Args:
        context: context of the process.
        agent: not yet attached.
    """
    config = context.config
    streams: int = config.env_config.num_envs
    pulse, feed = StepPulse(context, streams), TaskFeed(config.env_config)
    env = make_vector_env(
        config.env_config, num_envs=streams, seed=context.seed, pulse=pulse, feed=feed
    )
    if not is_aligned(config.learner_config):
        env.leave_out()
    actor = PolicyActor(
        context,
        agent,
        streams=streams,
        obs_spec=env.obs_spec,
        action_spec=env.action_spec,
        resets_in_step=env.resets_in_step,
    )
    actor.feed = feed
    return AgentService(context, [actor], VectorStepping(actor, env), env, pulse)


def prepare_agent(context: Context, agent: Agent, learner: type[Any]) -> Agent:
    """Lets add-ons prepare an agent that trains, and returns it.

    Args:
        context: context of the process.
        agent: agent to prepare.
        learner: class of the learner of its algorithm.
    """
    for prepare in AGENT:
        prepare(context, agent, learner)
    return agent


def make_agent(
    context: Context,
    agent: type[Agent],
    mode: AgentMode | str,
    agent_id: int | None = None,
    config: Config | None = None,
) -> Agent:
    """Builds the agent of a component.

    Args:
        context: context of the process.
        agent: the class.
        mode: an :class:`AgentMode` or its name.
        agent_id: the number; None: that of the component.
        config: config of its policy; None: that of the run.
    """
    config = context.config if config is None else config
    return agent(
        **sections_of(config),
        agent_id=context.component.index if agent_id is None else agent_id,
        agent_mode=mode,
    )
