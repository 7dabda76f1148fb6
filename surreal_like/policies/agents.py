"""Service of an agent process in an environment of several agents: acts for every policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.process.context import Context
from session.process.periodic import Every
from session.process.service import IDLE_SECONDS, Service
from session.wire.sockets import Socket
from surreal_like.agent.acting import Acting
from surreal_like.agent.base import Agent, AgentMode
from surreal_like.agent.fetcher import Fetcher, agent_for
from surreal_like.agent.link import AgentLink
from surreal_like.agent.loop import AgentService, make_agent, prepare_agent
from surreal_like.agent.sending import Leaving
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from surreal_like.algorithm.base import Algorithm
from surreal_like.data.episodes import EpisodeSummary, mean_metrics
from surreal_like.env.joint_vector import JointStep, JointVector, Rows, make_joint_vector
from surreal_like.experience.sender import ExpSender
from surreal_like.experience.stream_writer import StreamWriter
from surreal_like.policies.config import policies_of, policy_configs
from surreal_like.policies.mapping import map_to_only, parts_of
from surreal_like.replay.base import load_replay_class

# Rest of an agent that waits for an ack, which wakes it.
_WAITING_SECONDS = 0.2
# A chunk that could not be sent yet is tried soon.
_SEND_SECONDS = 0.01
_RECENT = 1000


def make_agent_service(
    context: Context, find: Callable[[Config], type[Algorithm]]
) -> AgentService | JointAgentService:
    """Builds the service of an agent process.

    Args:
        context: context of the process.
        find: returns the algorithm of a policy by its config.
    """
    if not policies_of(context.config):
        return AgentService(context, _make_agent(context, context.config, find))
    config = context.config
    copies: int = config.env_config.num_envs
    pulse = StepPulse(context, copies)
    env = make_joint_vector(
        config.env_config,
        parts_of(config),
        num_envs=copies,
        seed=context.seed,
        mapping=map_to_only(config),
        pulse=pulse,
    )
    actors = {
        name: PolicyActor(context, _make_agent(context, own, find), name, env.num_streams[name])
        for name, own in policy_configs(config).items()
    }
    return JointAgentService(context, actors, env, pulse)


def _make_agent(
    context: Context, config: Config, find: Callable[[Config], type[Algorithm]]
) -> Agent:
    algorithm = find(config)
    agent = make_agent(context, algorithm.agent, AgentMode.training, config=config)
    return prepare_agent(context, agent, algorithm.learner)


class PolicyActor:
    """Acts with one policy, and sends the experience of its streams.

    Args:
        context: context of this process.
        agent: agent of the policy; not yet attached.
        streams: number of its streams.

    Attributes:
        policy: name of the policy.
        fetcher: fetches its parameters.
    """

    def __init__(self, context: Context, agent: Agent, policy: str, streams: int) -> None:
        session, self.policy = agent.session_config, policy
        self._context, self._agent = context, agent
        self._link = AgentLink(context, policy=policy)
        agent.attach(self._link)
        self._acting = Acting(agent)
        self._acting.state = agent.initial_state(streams)
        self.sender = ExpSender(context, session.sender, policy=policy)
        self.window = self.sender.window
        self.writer = StreamWriter(
            streams,
            obs_spec=agent.env_config.obs_spec,
            action_spec=agent.env_config.action_spec,
            settings=session.sender,
            overlap=load_replay_class(agent.learner_config).overlap,
            send=self.sender.send,
        )
        self.fetcher = Fetcher(
            self._link.client,
            context.clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
            renews=True,
        )
        self.leaving = Leaving(context, self.sender, self._link.client)
        self._published_at = context.clock.time()
        self._rows: Rows | None = None

    @property
    def version(self) -> int:
        """Version of the parameters that act; 0 before the first."""
        return self._agent.version

    def tick(self) -> None:
        """Fetches parameters, and loads those that have arrived."""
        parameters = self.fetcher.tick()
        if parameters is not None:
            self._agent = self._acting.agent = agent_for(
                self._context, self._agent, parameters, self.policy
            )
            self._agent.load(parameters)
            self._published_at = parameters.info.get("time", self._context.clock.time())
        if not self.version and self.fetcher.idle:
            self.fetcher.want()

    def act(self) -> npt.NDArray[Any] | None:
        """Chooses the actions of the newest rows, and writes them; None without a row."""
        rows = self._rows
        if rows is None:
            return None
        answer = self._acting.answer(rows.obs, rows.first, rows.streams)
        actions, extras = self.writer.unpack(answer)
        self.writer.act(actions, extras, version=self.version, now=self._context.clock.now())
        return actions

    def observe(self, rows: Rows | None, episodes: list[EpisodeSummary]) -> None:
        """Takes the rows of the newest step, and the episodes that it ended."""
        self._rows = rows
        self.writer.observe(rows, episodes)
        if self._acting.hooked:
            self._acting.end_step(episodes)
        self.fetcher.count(len(episodes))

    def pump(self) -> None:
        """Reads acks, and sends what can be sent."""
        if self.writer.flush_due(self._context.clock.now()):
            self.writer.flush()
        self.sender.pump()

    def leave(self) -> None:
        """Sends the last rows and the goodbye, and begins to wait for their acks."""
        self.leaving.begin()
        self.writer.end()
        self.sender.send_goodbye()

    def _account(self) -> dict[str, Any]:
        """Returns the row counts, and what this process waits for."""
        return {**self.sender.account(), "status": self.waits_for()}

    def waits_for(self) -> dict[str, float]:
        """Returns what the policy waits for, for its account and the heartbeat."""
        return {
            "version": float(self.version),
            "waits_for_acks": float(not self.window.ready),
            "waits_above_version": 0.0,
        }

    @property
    def age_seconds(self) -> float:
        """Seconds since the parameters with which it acts were published."""
        return max(0.0, self._context.clock.time() - self._published_at)

    def curves(self) -> dict[str, float]:
        """Returns the numbers to report, by tag."""
        curves = {
            "policy_age_seconds": self.age_seconds,
            "version_lag": float(self.fetcher.lag),
            ".core/unacked_bytes": float(self.window.unacked_bytes),
            ".core/resent_chunks": float(self.window.resent),
        }
        epsilon = getattr(self._agent, "epsilon", None)
        return curves | {"epsilon": epsilon} if isinstance(epsilon, float) else curves

    @property
    def progress_steps(self) -> int:
        """Environment steps of the run, as the newest parameters tell them."""
        return self._agent.progress.env_steps


class JointAgentService(Service):
    """Acts in N environments of several agents until the run is over.

    It waits for the first parameters of every policy before its first step, and whenever too much
    sent experience of one of them is unacked.

    Args:
        context: context of this process.
        actors: policies that act, in their order in the config.
        env: the environments; `pulse` is what they call between them.
        pulse: heartbeats of long steps.
    """

    def __init__(
        self,
        context: Context,
        actors: Mapping[str, PolicyActor],
        env: JointVector,
        pulse: StepPulse,
    ) -> None:
        self._context, self._env, self._pulse = context, env, pulse
        self._actors = list(actors.values())
        # The first policy reports the episodes of all agents.
        self._owner = self._actors[0]
        self._pulse.work = self._pump
        self._begun = self._leaves = False
        self._pump_at = 0.0
        self._recent: deque[EpisodeSummary] = deque(maxlen=_RECENT)
        self._steps = 0
        self._steps_per_second = 0.0
        self._report_due = Every(
            seconds=context.config.session_config.tensorplex.update_schedule,
            clock=context.clock.now,
        )
        self._reported_at = context.clock.now()

    def tick(self) -> bool:
        """Makes one step of all environments, or continues leaving the run."""
        if self._leaves:
            for actor in self._actors:
                actor.leaving.tick()
            return False
        for actor in self._actors:
            actor.tick()
        if self._owner.fetcher.final:
            self.drain()
            return True
        if not all(actor.version for actor in self._actors):
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
            self._context.event("acting", f"version {self._owner.version}")
        answers = ((actor, actor.act()) for actor in self._actors)
        actions = {actor.policy: each for actor, each in answers if each is not None}
        now = self._context.clock.now()
        if now >= self._pump_at:
            self._pump_at = now + _SEND_SECONDS
            self._pump()
        self._observe(self._env.step(actions))
        self._steps += 1
        if self._report_due():
            self._report()

    def _observe(self, step: JointStep) -> None:
        episodes = [summary for _, summary in step.episodes]
        self._recent += episodes
        for actor in self._actors:
            ended = episodes if actor is self._owner else []
            actor.observe(step.rows.get(actor.policy), ended)

    def _pump(self) -> None:
        for actor in self._actors:
            actor.pump()

    def _report(self) -> None:
        now = self._context.clock.now()
        passed = max(1e-9, now - self._reported_at)
        self._steps_per_second = self._steps * self._env.num_envs / passed
        several, episodes = len(self._actors) > 1, list(self._recent)
        curves = {"steps_per_second": self._steps_per_second, **mean_metrics(episodes)}
        for actor in self._actors:
            prefix = f"{actor.policy}/" if several else ""
            curves |= {prefix + name: value for name, value in actor.curves().items()}
        if episodes:
            curves["return"] = float(np.mean([each["return"] for each in episodes]))
            curves["episode_length"] = float(np.mean([each["length"] for each in episodes]))
        self._context.tensorplex.add_scalars(curves, self._owner.progress_steps)
        self._reported_at, self._steps = now, 0
        self._recent.clear()

    def drain(self) -> None:
        """Sends the collected experience first."""
        if self._leaves:
            return
        self._leaves = True
        for actor in self._actors:
            actor.leave()
        if self._steps:
            self._report()

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        return all(actor.leaving.done for actor in self._actors)

    @property
    def proven(self) -> bool:
        """True once its environments have completed enough steps to be trusted."""
        return self._pulse.proven

    @property
    def ready(self) -> bool:
        return not self._leaves

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of acks and of parameters."""
        sockets = ((each.sender.socket, each.fetcher.client.socket) for each in self._actors)
        return [socket for pair in sockets for socket in pair]

    def rest_seconds(self) -> float:
        """Longer while only an ack can let it go on [s]."""
        waits = not self._leaves and any(
            not actor.window.ready and actor.window.next_to_send() is None for actor in self._actors
        )
        return _WAITING_SECONDS if waits else IDLE_SECONDS

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat: of all policies the largest."""
        each = [actor.waits_for() for actor in self._actors]
        return {
            "steps_per_second": self._steps_per_second,
            **{name: max(one[name] for one in each) for name in each[0]},
            "version": min(one["version"] for one in each),
            "version_lag": float(max(actor.fetcher.lag for actor in self._actors)),
            "unacked_bytes": float(sum(a.window.unacked_bytes for a in self._actors)),
            "env_steps": float(self._env.env_steps),
            "policy_age_seconds": max(actor.age_seconds for actor in self._actors),
        }

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()
