"""Base class of the agents of all algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from session.addons import count_acting
from session.config import Config
from session.config.string_enum import StringEnum
from session.errors import UsageError
from session.process.reporting import Reporting
from session.process.seeding import component_seed
from surreal_like.data.policy_names import PolicyId
from surreal_like.errors import unwritten
from surreal_like.network.flat import load_flat

if TYPE_CHECKING:
    from surreal_like.agent.run_link import AgentLink
    from surreal_like.data.parameters import Parameters
    from surreal_like.experience.chunk import Chunk


class AgentMode(StringEnum):
    """Training explores; evaluation takes sampled actions, or the best ones."""

    training = ()
    eval_stochastic = ()
    eval_deterministic = ()

    @classmethod
    def _missing_(cls, value: object) -> None:
        names = ", ".join(map(str, cls))
        raise UsageError(f"agent_mode is {value!r}: expected one of {names}")


class Progress(NamedTuple):
    """State of the run at the publication of the parameters; input of schedules.

    Args:
        env_steps: environment steps of all agents.
        iteration: number of updates of the parameters.
    """

    env_steps: int = 0
    iteration: int = 0


class Agent(Reporting):
    """Chooses actions, including exploration.

    An algorithm overrides :meth:`act`, :meth:`module_dict` and :meth:`default_config`.

    Args:
        learner_config: the experiment's ``learner_config``.
        env_config: the ``env_config``, with the specs.
        session_config: the ``session_config``.
        agent_id: number of this agent, or of this evaluator.
        agent_mode: an :class:`AgentMode` or its name.

    Attributes:
        first: True for streams whose episode begins now, bool ``[N]``; set before each :meth:`act`.
        streams: numbers of the streams of the rows, int64 ``[N]``; set before each :meth:`act`.
        prev_reward: rewards before the rows, float32 ``[n]``, as they are learned from but for
            ``algo.normalize_rewards``, 0 where an episode begins; set before each :meth:`act` with
            ``model.memory_inputs: [reward]``, else None.
        state: recurrent state of the streams, ``[N, ...]``; set before each :meth:`act`, which
            replaces it; None without a memory, and before the first call.
        progress: state of the run; schedules read it and keep no count of their own.
        num_agents: number of agents that the run was planned with, gateways included.
        rng: source of this agent's randomness, a numpy Generator.
        generator: the same for torch.
        synchronous: wait after each sent chunk, or part of a training iteration, for parameters
            newer than those that acted in it, and load no others meanwhile; at first
            ``learner_config.algo.synchronous``.
        version: version of the parameters in use, 0 before the first.
    """

    def __init__(
        self,
        *,
        learner_config: Config,
        env_config: Config,
        session_config: Config,
        agent_id: int,
        agent_mode: AgentMode | str,
    ) -> None:
        training = AgentMode(agent_mode) is AgentMode.training
        self._kind, self._group = ("agent", "agent") if training else ("evaluator", "eval")
        super().__init__(session_config, self._kind, agent_id, f"{self._group}/{agent_id}")
        self.learner_config = learner_config
        self.env_config = env_config
        self.session_config = session_config
        self.agent_id = agent_id
        self.agent_mode = AgentMode(agent_mode)
        self.num_agents: int = count_acting(session_config)
        self.progress = Progress()
        self.version = 0
        self.first: npt.NDArray[np.bool_] = np.ones(1, np.bool_)
        self.streams: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self.state: Any = None
        self.prev_reward: torch.Tensor | None = None
        seed = component_seed(session_config.seed, f"{self._group}-{agent_id}", 1)
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.acts_on_arrays = False
        self.synchronous = bool(learner_config.algo.get("synchronous", False))
        self._link: AgentLink | None = None

    @classmethod
    def default_config(cls) -> Mapping[str, Any]:
        """Returns defaults for ``learner_config``, a Config or a dict; the learner's are added."""
        return Config({})

    def act(self, obs: Any) -> Any:
        """Chooses actions.

        Args:
            obs: nest of tensors ``[N, ...]`` that matches the observation spec.

        Returns:
            Actions ``[N, ...]``, or ``(actions, extras)`` with a dict of arrays ``[N, ...]`` that
            are sent to the learner with them.
        """
        raise unwritten(self, "act(obs)", "your_own_algorithm.md")

    def act_on_arrays(self, obs: npt.NDArray[Any]) -> Any:
        """Returns what :meth:`act` returns for the same observations, without calls of torch.

        Called in its place where :attr:`acts_on_arrays` is True, unless the agent overrides a hook
        of its steps. For agents without a memory: :attr:`state` is not set.

        Args:
            obs: array ``[N, ...]`` that matches the observation spec.
        """
        raise unwritten(self, "act_on_arrays(obs)", "your_own_algorithm.md")

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        """Returns name -> module to fetch parameters for. Must agree with the learner's."""
        raise unwritten(self, "module_dict()", "your_own_algorithm.md")

    def initial_state(self, n: int) -> Any:
        """Returns the recurrent state of ``n`` streams at an episode's start; None without."""
        return None

    def postprocess(self, chunk: Chunk) -> Chunk:
        """Returns the chunk to send; may be overridden to change it.

        Called once for each chunk while training. Rewards may be replaced and columns
        ``extras/...`` added or replaced, in every chunk alike; returns of episodes count what the
        environment gave. Before the first row of an episode no action was taken: its reward stays
        0. Everything else must stay, or sending raises a DataError.

        Args:
            chunk: the ``columns`` have shape ``[T, N, ...]``. Make another one of it with
                ``dataclasses.replace(chunk, columns={**chunk.columns, "extras/mine": ...})``.
        """
        return chunk

    def pre_action(self, obs: Any) -> None:
        """Called before each :meth:`act`. This and the hooks below do nothing unless overridden.

        The library calls them wherever it calls :meth:`act`: in agents, evaluators, gateways, a
        Policy and a RolloutWorker. A script that calls :meth:`act` itself also calls the hooks.

        Args:
            obs: argument of :meth:`act`.
        """

    def post_action(self, obs: Any, actions: Any) -> None:
        """Called after the step that followed :meth:`act`.

        A Policy and a gateway, which do not step, call it after each :meth:`act`.

        Args:
            obs: argument of :meth:`act`.
            actions: result of :meth:`act`, with the extras if there were any.
        """

    def pre_episode(self, streams: npt.NDArray[np.int64]) -> None:
        """Called before the first :meth:`act` of episodes, with the numbers of their streams."""

    def post_episode(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Called after the step that ended episodes, with ``return``, ``length`` and ``metrics`` of
        each. A Policy does not call it: it sees no episode end.
        """

    def on_parameter_fetched(self) -> None:
        """Called after new parameters are loaded; :attr:`version` and :attr:`progress` are new."""

    def attach(self, link: AgentLink) -> None:
        """Connects the agent to a running process: its log, metrics, seed and sender.

        Called by the service, or at first use in a script.

        Args:
            link: connection of the process.
        """
        self._link, context = link, link.context
        seconds = self.session_config.tensorplex.update_schedule
        self.report_by(context, context.tensorplex, seconds)
        seed = PolicyId(link.policy).seed(context.seed)
        self.rng = np.random.default_rng(seed)
        self.generator.manual_seed(seed)
        link.acting.metrics = self.own_metrics
        if type(self).postprocess is not Agent.postprocess:
            link.acting.postprocess = self.postprocess

    def load(self, parameters: Parameters) -> None:
        """Loads parameters, which act from now on.

        Raises:
            SpecError: the parameters do not fit this agent's modules; the message shows both sides.
        """
        load_flat(self.module_dict(), parameters.flat, parameters.manifest)
        self.version = parameters.version
        self.progress = Progress(parameters.env_steps, parameters.iteration)
        if self._link is not None:
            self._link.acting.version = parameters.version
        self.on_parameter_fetched()

    def fetch_parameter(self) -> bool:
        """Fetches the newest parameters and waits for them; returns True if they were newer.

        In a script, ends the process if the run is over: collected experience is sent at exit.

        Raises:
            SystemExit: in a script, if the learner has reported the end of the run.
            DeadlineError: the parameter server did not answer in time.
            SpecError: the parameters do not fit this agent's modules; the message shows both sides.
        """
        link = self._connect()
        parameters = link.fetch()
        if parameters is not None:
            self.load(parameters)
        if link.ends_script:
            self.log.info("the run is over")
            raise SystemExit(0)
        return parameters is not None

    def fetch_parameter_info(self) -> dict[str, Any]:
        """Returns a description of the newest published parameters.

        Returns:
            ``time`` (wall clock, seconds), ``iteration``, ``message`` (of the learner, empty by
            default) and ``hash``; empty and 0 before the first publication.

        Raises:
            DeadlineError: the parameter server did not answer in time.
        """
        return self._connect().fetch_info()

    @property
    def run_steps(self) -> int:
        """Environment steps of the whole run, as far as known."""
        return self.progress.env_steps

    def _connect(self) -> AgentLink:
        if self._link is None:
            from surreal_like.agent.run_link import link_script

            self.attach(link_script(self.session_config, self._kind))
        assert self._link is not None  # attached
        return self._link


def rewards_of(agent: Agent) -> dict[str, torch.Tensor]:
    """Returns the further arguments of a network with a memory that reads the reward before."""
    return {} if agent.prev_reward is None else {"rewards": agent.prev_reward}
