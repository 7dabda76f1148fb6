"""Service of an agent process in an environment of several agents: acts for every policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy.typing as npt

from session.config import Config
from session.process.context import Context
from session.process.service import IDLE_SECONDS
from session.wire.sockets import Socket
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.base import Agent, AgentMode
from surreal_like.agent.loop import WAITING_SECONDS, AgentService, make_agent, prepare_agent
from surreal_like.agent.sending import Sending, SendingService
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.env.feed import RunFeed
from surreal_like.env.joint_vector import JointStep, JointVector, Rows, make_joint_vector
from surreal_like.experience.sender import ExpSender
from surreal_like.experience.stream_writer import StreamWriter
from surreal_like.policies.acting import PublishedSnapshots
from surreal_like.policies.config import policies_of, policy_configs
from surreal_like.policies.opponents import Found, make_opponents
from surreal_like.policies.seats import Seats, parts_of
from surreal_like.replay.base import load_replay_class

# A chunk that could not be sent yet is tried soon.
_SEND_SECONDS = 0.01
_RECENT = 1000


def make_agent_service(context: Context, found: Found) -> AgentService | JointAgentService:
    """Builds the service of an agent process.

    Args:
        context: context of the process.
        found: finds algorithms and trained policies.
    """
    config = context.config
    if not policies_of(config):
        return AgentService(context, _make_agent(context, config, found))
    copies: int = config.env_config.num_envs
    pulse, feed = StepPulse(context, copies), RunFeed(config.env_config)
    env = make_joint_vector(
        config.env_config,
        parts_of(config),
        num_envs=copies,
        seed=context.seed,
        deal=Seats(config, context.seed).deal,
        pulse=pulse,
        feed=feed,
    )
    actors = [
        PolicyActor(context, _make_agent(context, own, found), name, env.num_streams[name])
        for name, own in policy_configs(config).items()
    ]
    opponents = make_opponents(
        config,
        found,
        partial(PublishedSnapshots, context),
        num_envs=copies,
        seed=context.seed,
    )
    for each in opponents:
        each.begin(env.num_streams[each.policy])
    # The first policy owns the run: its parameters have the progress and the task.
    actors[0].feed = feed
    return JointAgentService(context, actors, opponents, env, pulse)


def _make_agent(context: Context, config: Config, found: Found) -> Agent:
    algorithm = found.algorithm(config)
    agent = make_agent(context, algorithm.agent, AgentMode.training, config=config)
    return prepare_agent(context, agent, algorithm.learner)


class PolicyActor(Sending):
    """Acts with a policy that learns, and sends the experience of its streams.

    Args:
        context: context of this process.
        agent: agent of the policy; not yet attached.
        policy: name of the policy.
        streams: number of its streams.
    """

    def __init__(self, context: Context, agent: Agent, policy: str, streams: int) -> None:
        settings = agent.session_config.sender
        sender = ExpSender(context, settings, policy=policy)
        super().__init__(context, agent, sender, policy=policy, more=lambda: self.more())
        self._acting = Acting(agent)
        self._acting.state = agent.initial_state(streams)
        self.writer = StreamWriter(
            streams,
            obs_spec=agent.env_config.obs_spec,
            action_spec=agent.env_config.action_spec,
            settings=settings,
            overlap=load_replay_class(agent.learner_config).overlap,
            send=self.sender.send,
        )
        self.feed: RunFeed | None = None
        self.more: Callable[[], Mapping[str, Any]] = dict
        self._now = context.clock.now
        self._rows: Rows | None = None

    def tick(self) -> None:
        """Fetches parameters, and loads those that have arrived."""
        parameters = self.fetcher.tick()
        if parameters is not None:
            self.load(parameters)
            if self.feed is not None:
                self.feed.update(parameters)
            self._acting.agent = self.agent
        if not self.agent.version and self.fetcher.idle:
            self.fetcher.want()

    def act(self) -> npt.NDArray[Any] | None:
        """Chooses the actions of the newest rows, and writes them; None without a row."""
        rows = self._rows
        if rows is None:
            return None
        answer = self._acting.answer(rows.obs, rows.first, rows.streams, rows.reward)
        actions, extras = self.writer.unpack(answer)
        self.writer.act(actions, extras, version=self.agent.version, now=self._now())
        return actions

    def observe(self, rows: Rows | None, episodes: list[EpisodeSummary], *, reports: bool) -> None:
        """Takes the rows of the newest step.

        Args:
            rows: rows of the policy.
            episodes: joint episodes that the step ended.
            reports: True if this policy sends their summaries, which one of all does.
        """
        self._rows = rows
        self.writer.observe(rows, episodes if reports else [])
        if self._acting.hooked:
            self._acting.end_step(episodes)
        self.fetcher.count(len(episodes))

    def pump(self) -> None:
        """Reads acks, and sends what can be sent."""
        if self.writer.flush_due(self._now()):
            self.writer.flush()
        self.sender.pump()

    def leave(self) -> None:
        """Sends the last rows and the goodbye, and begins to wait for their acks."""
        self.leaving.begin()
        self.writer.end()
        self.sender.send_goodbye()

    def curves(self) -> dict[str, float]:
        """Returns the numbers to report, by tag."""
        return {"policy_age_seconds": self.age_seconds, **super().curves()}


class JointAgentService(SendingService):
    """Acts in N environments of several agents until the run is over.

    It waits for the first parameters of every policy before its first step, and whenever too much
    sent experience of one of them is unacked.

    Args:
        context: context of this process.
        actors: policies that learn, in their order in the config; the first one reports the
            episodes of all agents.
        opponents: policies that do not learn.
        env: the environments.
        pulse: heartbeats of long steps, which the environments call.
    """

    def __init__(
        self,
        context: Context,
        actors: Sequence[PolicyActor],
        opponents: Sequence[ActingPolicy],
        env: JointVector,
        pulse: StepPulse,
    ) -> None:
        super().__init__(context, actors)
        self._actors, self._opponents = actors, opponents
        self._env, self._pulse = env, pulse
        actors[0].more = self._restarts
        self._pulse.work = self._pump
        self._begun = self._leaves = False
        self._pump_at = 0.0
        self._recent: deque[EpisodeSummary] = deque(maxlen=_RECENT)
        self._newest = JointStep({}, [])

    def tick(self) -> bool:
        """Makes one step of all environments, or continues leaving the run."""
        if self._leaves:
            for actor in self._actors:
                actor.leaving.tick()
            return False
        for actor in self._actors:
            actor.tick()
        for opponent in self._opponents:
            opponent.fetch()
        if self._sending.fetcher.final:
            self.drain()
            return True
        parameters = all(actor.agent.version for actor in self._actors)
        if not parameters or not all(each.ready for each in self._opponents):
            return False
        if not all(actor.window.ready for actor in self._actors):
            self._pump()
            return all(actor.window.ready for actor in self._actors)
        self._pulse.begin()
        # A stop request ended a long step: `drain` is called next.
        with suppress(StepAbandonedError):
            self._step()
        return True

    def _step(self) -> None:
        if not self._begun:
            self._begun = True
            self._observe(self._env.reset())
            self._context.event("acting", f"version {self._sending.agent.version}")
        answers = ((actor.policy, actor.act()) for actor in self._actors)
        actions = {policy: each for policy, each in answers if each is not None}
        for opponent in self._opponents:
            rows = self._newest.rows.get(opponent.policy)
            if rows is not None:
                actions[opponent.policy] = opponent.act(rows)
        now = self._context.clock.now()
        if now >= self._pump_at:
            self._pump_at = now + _SEND_SECONDS
            self._pump()
        self._observe(self._env.step(actions))
        self._steps += 1
        if self._report_due():
            self._report_curves()

    def _observe(self, step: JointStep) -> None:
        self._newest = step
        # First: they may add metrics to the episodes.
        for opponent in self._opponents:
            opponent.end_step(step.episodes)
        episodes = [summary for _, summary in step.episodes]
        self._recent += episodes
        for actor in self._actors:
            actor.observe(step.rows.get(actor.policy), episodes, reports=actor is self._sending)

    def _pump(self) -> None:
        for actor in self._actors:
            actor.pump()

    def _report_curves(self) -> None:
        self._report({}, list(self._recent), num_envs=self._env.num_envs)
        self._recent.clear()

    def drain(self) -> None:
        """Sends the collected experience first."""
        if self._leaves:
            return
        self._leaves = True
        for actor in self._actors:
            actor.leave()
        if self._steps:
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
        steps = float(self._env.env_steps)
        return {**super().status(), "env_steps": steps, "policy_age_seconds": oldest}

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()
