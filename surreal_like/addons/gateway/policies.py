"""The agents of a gateway, one for each mode; each is called for the streams of many sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from session import nest
from session.config import Config
from session.nest import Array, Nest
from surreal_like.addons.gateway.slots import Advice
from surreal_like.agent.acting import Acting, Indices, Rewards
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.data.frames import stack_size
from surreal_like.data.parameters import Parameters
from surreal_like.data.spec import make_clip, parse_action_spec
from surreal_like.data.timestep import Flags
from surreal_like.env.frame_stack import FrameStacks


class Inference:
    """Calls an agent for any of its streams; keeps frames and recurrent state by stream.

    Args:
        agent: Agent that acts; only here.
        env_config: Section ``env_config`` of the experiment.
        num_streams: Number of all streams.
    """

    def __init__(self, agent: Agent, env_config: Config, num_streams: int) -> None:
        self.acting = Acting(agent)
        self.acting.state = agent.initial_state(num_streams)
        frames = stack_size(env_config)
        self._stacks = FrameStacks(frames, num_streams) if frames > 1 else None

    def act(
        self, streams: Indices, obs: Nest, first: Flags, rewards: Rewards | None = None
    ) -> Advice:
        """Returns the actions of some streams.

        Args:
            streams: Numbers of the streams, ``[n]``.
            obs: Single frames, nest of arrays ``[n, ...]``.
            first: Flags that are True where an episode begins, ``[n]``.
            rewards: Rewards of the actions before, float32 ``[n]``; None: nothing was done before.
        """
        acting, seen = self.acting, obs
        if self._stacks is not None:
            seen = self._stacks.push(obs, first, streams)
        actions, extras = acting.act(seen, first, streams, rewards)
        acting.end_step()
        # The agent may reuse its arrays before the rows are written.
        return Advice(actions.copy(), extras, acting.agent.version)


def concatenate(parts: Sequence[Nest]) -> Nest:
    """Returns nests of arrays ``[N, ...]`` as one of ``[n, ...]``."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return nest.map(lambda *leaves: np.concatenate(leaves), *parts)


MakeAgent = Callable[[AgentMode], Agent]


class Answers(NamedTuple):
    """Answers of a batch: for the rows, and as the clients get them."""

    advice: Advice
    actions: Array


class Policies:
    """Answers observations in any mode; an agent is made when its mode is first needed.

    Args:
        make: Function that makes the agent of a mode.
        env_config: Section ``env_config`` of the experiment.
        num_streams: Number of streams of all places.
        modes: Modes of sessions, and of their agents; the first one is the default.

    Attributes:
        newest: Newest parameters; None before the first.
        gives_numbers: True if the action of one stream is one number.
    """

    def __init__(
        self,
        make: MakeAgent,
        env_config: Config,
        num_streams: int,
        modes: Mapping[str, AgentMode],
    ) -> None:
        self.modes = modes
        self.newest: Parameters | None = None
        self._frozen: dict[str, Parameters] = {}
        self._make, self._env_config, self._num_streams = make, env_config, num_streams
        self._inferences: dict[str, Inference] = {}
        spec = parse_action_spec(env_config.action_spec)
        self._clip = make_clip(env_config)
        self.gives_numbers = spec.type == "discrete" and not spec.array.dim

    @property
    def version(self) -> int:
        """Version of the parameters, 0 before the first."""
        return 0 if self.newest is None else self.newest.version

    def load(self, parameters: Parameters) -> None:
        """Loads parameters into agents, which act with them from the next batch on.

        Those of frozen modes keep theirs.
        """
        self.newest = parameters
        for mode, inference in self._inferences.items():
            if mode not in self._frozen:
                inference.acting.agent.load(parameters)

    def freeze(self, mode: str, parameters: Parameters) -> None:
        """Loads parameters into the agent of one mode, which keeps them until the next call."""
        self._frozen[mode] = parameters
        self.agent(mode).load(parameters)

    def agent(self, mode: str) -> Agent:
        """Returns the agent of a mode."""
        return self._inference(mode).acting.agent

    def _inference(self, mode: str) -> Inference:
        found = self._inferences.get(mode)
        if found is None:
            agent = self._make(self.modes[mode])
            parameters = self._frozen.get(mode, self.newest)
            if parameters is not None:
                agent.load(parameters)
            found = Inference(agent, self._env_config, self._num_streams)
            self._inferences[mode] = found
        return found

    def end_episodes(
        self, mode: str, episodes: Sequence[Mapping[str, Any]], metrics: Mapping[str, float]
    ) -> None:
        """Calls the hook of an agent for episodes that ended.

        Args:
            mode: Mode of the session.
            episodes: Episodes with their ``return`` and ``length``.
            metrics: Numbers that the client has sent; empty for several episodes at once.
        """
        acting = self._inference(mode).acting
        if acting.hooked:
            acting.end_episodes(
                [
                    {"return": each["return"], "length": each["length"], "metrics": metrics}
                    for each in episodes
                ]
            )

    def act(
        self, mode: str, streams: Indices, obs: Nest, first: Flags, rewards: Rewards | None = None
    ) -> Answers:
        """Returns the actions of a batch; clients get them within their bounds.

        Args:
            mode: Mode of the sessions.
            streams, obs, first, rewards: See :meth:`Inference.act`.
        """
        advice = self._inference(mode).act(streams, obs, first, rewards)
        return Answers(advice, self._clip(advice.action))
