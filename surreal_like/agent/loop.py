"""Service of the agent process: act, step, send, load new parameters as they arrive."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch

from session.config.sections import sections_of
from session.process.context import Context
from session.process.periodic import Every
from session.process.service import IDLE_SECONDS, Service
from session.wire.sockets import Socket
from surreal_like.agent.base import Agent
from surreal_like.agent.fetcher import Fetcher
from surreal_like.agent.generation import agent_for
from surreal_like.agent.hooks import Hooks
from surreal_like.agent.leaving import Leaving
from surreal_like.agent.mode import AgentMode
from surreal_like.agent.stepping import StepAbandonedError, Stepping
from surreal_like.agent.wrapper import ExpSenderWrapper
from surreal_like.data.episodes import EpisodeSummary, mean_metrics
from surreal_like.data.parameters import Parameters
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env
from surreal_like.experience.actor_state import acting_of
from surreal_like.network.tensors import to_tensor
from surreal_like.ps.client import ParameterClient
from surreal_like.ps.schemas import ANSWERS
from surreal_like.replay.iteration import steps_together

# Rest of an agent that waits for an ack, which wakes it. Many agents that wait and wake more often
# than needed would take the processor from replay and learner.
_WAITING_SECONDS = 0.2


class AgentService(Service):
    """Acts in N environments until the run is over.

    It waits for the first parameters before its first step, and whenever too much sent experience
    is unacked.

    Args:
        context: of this process.
        agent: not yet attached.
    """

    def __init__(self, context: Context, agent: Agent) -> None:
        config, clock = context.config, context.clock
        session = config.session_config
        self._context = context
        self._agent = agent
        agent.attach(context)
        streams: int = config.env_config.num_envs
        agent.streams = np.arange(streams)
        self._stepping = Stepping(context, streams)
        self._env = ExpSenderWrapper(
            make_vector_env(
                config.env_config, num_envs=streams, seed=context.seed, pulse=self._stepping
            ),
            config.learner_config,
            session,
            context=context,
        )
        self._stepping.work = self._env.pump
        # Frames are stacked outside the sending wrapper: chunks hold each frame once.
        self._seen = stack_frames(self._env, config.env_config)
        self._sender = self._env.sender
        self._window = self._sender.window
        self._fetcher = Fetcher(
            ParameterClient(context.wire.dealer("ps.requests", ANSWERS), clock),
            clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
            renews=not agent.synchronous,
        )
        self._published_at = context.clock.time()
        self._leaving = Leaving(context, self._sender, self._fetcher.client)
        self._report = Report(context, session.tensorplex.update_schedule.agent)
        # Without overridden hooks a step has no cost for them.
        self._hooks = Hooks(agent) if Hooks.any_of(agent) else None
        self._inference = torch.inference_mode()
        self._obs: Any = None
        # Synchronous agents: (learner incarnation, version) of the part sent last, the
        # incarnation of the replay that has it, and the number of rows dropped before it.
        self._behind: tuple[int, int] | None = None
        self._holder = self._dropped = 0
        # Steps of a part, 0: a part is one chunk; additional steps of the first part; steps made
        # of the present part; and whether a chunk of it has been sent.
        self._part, self._first_part = steps_together(
            config.learner_config, config.env_config, session
        )
        self._made, self._part_sent = 0, False
        # Parameters that wait for the end of an unroll.
        self._arrived: Parameters | None = None

    def tick(self) -> bool:
        """Makes one step of all environments, or continues leaving the run."""
        if not self._leaving.begun:
            return self._act()
        self._leaving.tick()
        return False

    def _act(self) -> bool:
        fetcher, env = self._fetcher, self._env
        parameters = fetcher.tick() or self._arrived
        if parameters is not None:
            self._on_parameters(parameters)
        if fetcher.final:
            self._begin_leaving()
            return True
        if not self._agent.version:
            if fetcher.idle:
                fetcher.want()
            return False
        if not self._window.ready or (self._behind is not None and self._waits()):
            env.pump()
            return self._window.ready and self._behind is None
        self._stepping.begin()
        # A stop request ended a long step: `drain` is called next.
        with suppress(StepAbandonedError):
            if self._obs is None:
                self._obs, _ = self._seen.reset()
                self._context.event("acting", f"version {self._agent.version}")
            self._step()
        return True

    def _on_parameters(self, parameters: Parameters) -> None:
        """Loads parameters; those that come in the middle of an unroll may have to wait."""
        # One version acts in all of an unroll that the agent makes a gradient of.
        if not self._env.between_chunks and acting_of(self._context).pack is not None:
            self._arrived = parameters
            return
        self._arrived = None
        agent = agent_for(self._context, self._agent, parameters)
        if agent is not self._agent:
            self._agent, self._hooks = agent, Hooks(agent) if Hooks.any_of(agent) else None
        agent.load(parameters)
        self._published_at = parameters.info.get("time", self._context.clock.time())

    def _waits(self) -> bool:
        """Returns True while a synchronous agent waits for a version after its last part."""
        assert self._behind is not None  # it has sent one
        # A restarted replay does not have the part: no newer version would follow from it.
        lost = self._holder and self._window.replay != self._holder
        refused = self._window.dropped > self._dropped
        if lost or refused or self._fetcher.client.have > self._behind:
            self._behind = None
            return False
        self._holder = self._window.replay
        if self._fetcher.idle:
            self._fetcher.want_newer()
        return True

    def _step(self) -> None:
        agent, env = self._agent, self._env
        agent.first = env.first
        sent = self._window.next_sequence
        obs = self._obs
        if self._hooks is None and agent.acts_on_arrays:
            self._obs = self._seen.step(agent.act_on_arrays(obs))[0]
        else:
            self._obs = self._step_with_tensors(obs)
        if not agent.synchronous:
            self._fetcher.count(env.num_finished)
        else:
            self._count_part(sent)
        self._report.steps += 1
        if self._report.due():
            self._report_curves()

    def _step_with_tensors(self, obs: Any) -> Any:
        """Acts by torch, steps, and calls the author's hooks; returns the next observations."""
        agent, hooks = self._agent, self._hooks
        with self._inference:
            tensors = torch.from_numpy(obs) if type(obs) is np.ndarray else to_tensor(obs)
            if hooks is not None:
                hooks.before(tensors)
            actions = agent.act(tensors)
        following = self._seen.step(actions)[0]
        if hooks is not None:
            hooks.after(tensors, actions, self._env.finished)
        return following

    def _count_part(self, sent: int) -> None:
        """Counts a step of a synchronous agent, before which the next chunk had number ``sent``."""
        window, steps = self._window, self._part
        self._made += 1
        if steps and not self._agent.progress.iteration:
            steps += self._first_part
        over = self._made >= steps
        if steps and over:
            self._env.flush()
        if window.next_sequence == sent:
            return
        if not self._part_sent:
            self._holder, self._dropped = window.replay, window.dropped
        self._part_sent = not over
        if over:
            self._behind, self._made = self._fetcher.client.have, 0

    def _report_curves(self) -> None:
        window, agent = self._sender.window, self._agent
        values = {
            "version_lag": float(self._fetcher.lag),
            "policy_age_seconds": self._policy_age_seconds,
            ".core/unacked_bytes": float(window.unacked_bytes),
            ".core/resent_chunks": float(window.resent),
        }
        epsilon = getattr(agent, "epsilon", None)
        if isinstance(epsilon, float):
            values["epsilon"] = epsilon
        self._report.add_curves(
            values, self._env.pop_recent(), self._env.num_envs, agent.progress.env_steps
        )

    def _begin_leaving(self) -> None:
        """Flushes the experience and starts to wait for its acks."""
        self._leaving.begin()
        self._env.finish()
        if self._report.steps:
            # Reports the steps since the last report.
            self._report_curves()

    def drain(self) -> None:
        """Handles the stop request: sends the collected experience first."""
        if not self._leaving.begun:
            self._begin_leaving()

    @property
    def proven(self) -> bool:
        """True once its environments have completed enough steps to be trusted."""
        return self._stepping.proven

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        return self._leaving.done

    @property
    def ready(self) -> bool:
        return not self._leaving.begun

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of acks and of parameters."""
        return [self._sender.socket, self._fetcher.client.socket]

    def rest_seconds(self) -> float:
        """Longer while only an ack can let it go on [s]."""
        window = self._window
        waits = not (window.ready or self._leaving.begun) and window.next_to_send() is None
        return _WAITING_SECONDS if waits else IDLE_SECONDS

    def status(self) -> dict[str, float]:
        return {
            "steps_per_second": self._report.steps_per_second,
            **self._waits_for(),
            "version_lag": float(self._fetcher.lag),
            "policy_age_seconds": self._policy_age_seconds,
            "unacked_bytes": float(self._sender.window.unacked_bytes),
            "env_steps": float(self._sender.env_steps),
        }

    @property
    def _policy_age_seconds(self) -> float:
        """Seconds since the parameters with which it acts were published."""
        return max(0.0, self._context.clock.time() - self._published_at)

    def _account(self) -> dict[str, Any]:
        """Returns the sender's row counts, and what this agent waits for."""
        return {**self._sender.account(), "status": self._waits_for()}

    def _waits_for(self) -> dict[str, float]:
        return {
            "version": float(self._agent.version),
            "waits_for_acks": float(not self._window.ready),
            "waits_above_version": float(self._behind[1] if self._behind is not None else 0),
        }

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


class Report:
    """Numbers since the last report."""

    def __init__(self, context: Context, seconds: float) -> None:
        self.steps = 0
        self.steps_per_second = 0.0
        self.due = Every(seconds=seconds, clock=context.clock.now)
        self._context = context
        self._since = context.clock.now()

    def add_curves(
        self,
        values: dict[str, float],
        episodes: list[EpisodeSummary],
        num_envs: int,
        global_step: int,
    ) -> None:
        """Reports the curves of one agent."""
        now = self._context.clock.now()
        passed = max(1e-9, now - self._since)
        self.steps_per_second = self.steps * num_envs / passed
        values["steps_per_second"] = self.steps_per_second
        if episodes:
            values["return"] = float(np.mean([each["return"] for each in episodes]))
            values["episode_length"] = float(np.mean([each["length"] for each in episodes]))
        self._context.tensorplex.add_scalars(mean_metrics(episodes) | values, global_step)
        self._since, self.steps = now, 0


def make_agent(
    context: Context, agent: type[Agent], mode: AgentMode | str, agent_id: int | None = None
) -> Agent:
    """Builds the agent of a component.

    Args:
        context: of the process.
        agent: its class.
        mode: an :class:`AgentMode` or its name.
        agent_id: its number; None: that of the component.
    """
    config = context.config
    return agent(
        **sections_of(config),
        agent_id=context.component.index if agent_id is None else agent_id,
        agent_mode=mode,
    )
