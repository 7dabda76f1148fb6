"""Service of the agent process: act, step, send, load new parameters as they arrive."""

from __future__ import annotations

from typing import Any

from session.addons import hooks
from session.config import Config
from session.config.sections import sections_of
from session.process.context import Context
from session.process.service import IDLE_SECONDS
from session.wire.sockets import Socket
from surreal_like.agent.acting import Acting
from surreal_like.agent.base import Agent, AgentMode
from surreal_like.agent.sending import Sending, SendingService
from surreal_like.agent.step_pulse import StepAbandonedError, StepPulse
from surreal_like.agent.wrapper import ExpSenderWrapper
from surreal_like.data.parameters import Parameters
from surreal_like.env.feed import RunFeed
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env
from surreal_like.replay.settings import steps_together

# Rest of an agent that waits for an ack, which wakes it. Many agents that wait and wake more often
# than needed would take the processor from replay and learner.
WAITING_SECONDS = 0.2


class AgentService(SendingService):
    """Acts in N environments until the run is over.

    It waits for the first parameters before its first step, and whenever too much sent experience
    is unacked.

    Args:
        context: context of this process.
        agent: not yet attached.
    """

    def __init__(self, context: Context, agent: Agent) -> None:
        config = context.config
        self._acting = Acting(agent)
        streams: int = config.env_config.num_envs
        self._pulse = StepPulse(context, streams)
        self._feed = RunFeed(config.env_config)
        self._env = ExpSenderWrapper(
            make_vector_env(
                config.env_config,
                num_envs=streams,
                seed=context.seed,
                pulse=self._pulse,
                feed=self._feed,
            ),
            config.learner_config,
            config.session_config,
            context=context,
        )
        sending = Sending(
            context,
            agent,
            self._env.sender,
            renews=not agent.synchronous,
            more=self._restarts,
        )
        super().__init__(context, [sending])
        self._fetcher, self._window, self._leaving = (
            sending.fetcher,
            sending.window,
            sending.leaving,
        )
        self._pulse.work = self._env.pump
        # Frames are stacked outside the sending wrapper: chunks hold each frame once.
        self._seen = stack_frames(self._env, config.env_config)
        self._obs: Any = None
        self._rewards: Any = None
        # Synchronous agents: (learner incarnation, version) of the part sent last, the
        # incarnation of the replay that has it, and the number of rows dropped before it.
        self._behind: tuple[int, int] | None = None
        self._holder = self._dropped = 0
        # Steps of a part, 0: a part is one chunk; additional steps of the first part; steps made
        # of the present part; and whether a chunk of it has been sent.
        self._part, self._first_part = steps_together(
            config.learner_config, config.env_config, config.session_config
        )
        self._made, self._part_sent = 0, False
        # Parameters that wait for the end of an unroll.
        self._arrived: Parameters | None = None

    def tick(self) -> bool:
        """Makes one step of all environments, or continues leaving the run."""
        if self._leaving.begun:
            self._leaving.tick()
            return False
        fetcher, env = self._fetcher, self._env
        parameters = fetcher.tick() or self._arrived
        if parameters is not None:
            self._on_parameters(parameters)
        if fetcher.client.final:
            self._begin_leaving()
            return True
        if not self._sending.agent.version:
            if fetcher.idle:
                fetcher.want()
            return False
        if not self._window.ready or (self._behind is not None and self._waits()):
            env.pump()
            return self._window.ready and self._behind is None
        self._pulse.begin()
        try:
            if self._obs is None:
                self._obs, _ = self._seen.reset()
                self._context.event("acting", f"version {self._sending.agent.version}")
            self._step()
        except StepAbandonedError:
            # A stop request ended a long step: `drain` is called next.
            pass
        return True

    def _on_parameters(self, parameters: Parameters) -> None:
        """Loads parameters; those that come in the middle of an unroll may have to wait."""
        # One version acts in all of an unroll that the agent makes a gradient of.
        if not self._env.between_chunks and self._sending.link.acting.pack is not None:
            self._arrived = parameters
            return
        self._arrived = None
        self._sending.load(parameters)
        self._feed.update(parameters)
        self._acting.agent = self._sending.agent

    def _waits(self) -> bool:
        """Returns True while a synchronous agent waits for a version after its last part."""
        assert self._behind is not None  # it has sent one
        # A restarted replay does not have the part: no newer version would follow from it.
        lost = self._holder and self._window.replay != self._holder
        refused = self._window.dropped > self._dropped
        if lost or refused or self._fetcher.client.have > self._behind:
            self._behind, self._sending.waits_above = None, 0
            return False
        self._holder = self._window.replay
        if self._fetcher.idle:
            self._fetcher.want_newer()
        return True

    def _step(self) -> None:
        acting, env = self._acting, self._env
        sent = self._window.next_sequence if acting.agent.synchronous else 0
        answer = acting.answer(self._obs, env.first, rewards=self._rewards)
        self._obs, self._rewards, terminated, truncated, _ = self._seen.step(answer)
        if acting.hooked:
            acting.end_step(env.finished)
        if acting.agent.synchronous:
            self._count_part(sent)
        elif not self._fetcher.by_episodes:
            self._fetcher.count(0)
        elif 1 in terminated.tobytes() or 1 in truncated.tobytes():
            self._fetcher.count(env.num_finished)
        self._steps += 1
        if self._pulse.began_at >= self._report_due.at and self._report_due():
            self._report_curves()

    def _count_part(self, sent: int) -> None:
        """Counts a step of a synchronous agent, before which the next chunk had number ``sent``."""
        window, steps = self._window, self._part
        self._made += 1
        if steps and not self._sending.agent.progress.iteration:
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
            self._sending.waits_above = self._behind[1]

    def _report_curves(self) -> None:
        curves = {"policy_age_seconds": self._sending.age_seconds}
        self._report(curves, self._env.pop_recent(), num_envs=self._env.num_envs)

    def _begin_leaving(self) -> None:
        """Flushes the experience and starts to wait for its acks."""
        self._leaving.begin()
        self._env.finish()
        if self._steps:
            # Reports the steps since the last report.
            self._report_curves()

    def drain(self) -> None:
        """Handles the stop request: sends the collected experience first."""
        if not self._leaving.begun:
            self._begin_leaving()

    @property
    def env_restarts(self) -> int:
        return self._env.env_restarts

    @property
    def proven(self) -> bool:
        """True once its environments have completed enough steps to be trusted."""
        return self._pulse.proven

    @property
    def ready(self) -> bool:
        return not self._leaving.begun

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of acks and of parameters."""
        return [self._sending.sender.socket, self._fetcher.client.socket]

    def rest_seconds(self) -> float:
        """Longer while only an ack can let it go on [s]."""
        window = self._window
        waits = not (window.ready or self._leaving.begun) and window.next_to_send() is None
        return WAITING_SECONDS if waits else IDLE_SECONDS

    def status(self) -> dict[str, float]:
        return {**super().status(), "policy_age_seconds": self._sending.age_seconds}

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


def prepare_agent(context: Context, agent: Agent, learner: type[Any]) -> Agent:
    """Lets add-ons prepare an agent that trains, and returns it.

    Args:
        context: context of the process.
        agent: agent to prepare.
        learner: class of the learner of its algorithm.
    """
    for prepare in hooks("agent"):
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
