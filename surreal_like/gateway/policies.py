"""The agents of a gateway: one for each mode of its sessions, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from session.config import Config
from session.nest import Array, Nest
from surreal_like.agent.base import Agent
from surreal_like.agent.mode import AgentMode
from surreal_like.data.parameters import Parameters
from surreal_like.data.spec import parse_action_spec
from surreal_like.experience.chunk_episodes import Flags
from surreal_like.gateway.inference import Indices, Inference
from surreal_like.gateway.slots import Advice

MakeAgent = Callable[[AgentMode], Agent]


class Answers(NamedTuple):
    """Answers of a batch: for the rows, and as the clients get them."""

    advice: Advice
    shown: Array


class Policies:
    """Answers observations in any mode; an agent is made when its mode is first needed.

    Args:
        make: makes an agent.
        env_config: of the experiment.
        num_streams: of all places.
        modes: of sessions, and of their agents; the first one is the default.

    Attributes:
        newest: parameters; None before the first.
        gives_numbers: True: the action of one stream is one number.
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
        bounded = spec.array.low is not None or spec.array.high is not None
        self._clips = bool(env_config.clip_action) and spec.type == "continuous" and bounded
        self.gives_numbers = spec.type == "discrete" and not spec.array.dim
        self._bounds = spec.array.low, spec.array.high

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
                inference.agent.load(parameters)

    def freeze(self, mode: str, parameters: Parameters) -> None:
        """Loads parameters into the agent of one mode, which keeps them until the next call."""
        self._frozen[mode] = parameters
        self.agent(mode).load(parameters)

    def agent(self, mode: str) -> Agent:
        """Returns the agent of a mode."""
        return self._inference(mode).agent

    def _inference(self, mode: str) -> Inference:
        found = self._inferences.get(mode)
        if found is None:
            # Making an agent seeds torch: the noise of the others must not be repeated.
            with torch.random.fork_rng(devices=[]):
                agent = self._make(self.modes[mode])
            parameters = self._frozen.get(mode, self.newest)
            if parameters is not None:
                agent.load(parameters)
            found = Inference(agent, self._env_config, self._num_streams)
            self._inferences[mode] = found
        return found

    def act(self, mode: str, streams: Indices, obs: Nest, first: Flags) -> Answers:
        """Returns the actions of a batch; clients get them within their bounds.

        Args:
            mode: of its sessions.
            streams, obs, first: of :meth:`Inference.act`.
        """
        advice = self._inference(mode).act(streams, obs, first)
        low, high = self._bounds
        shown: Any = np.clip(advice.action, low, high) if self._clips else advice.action
        return Answers(advice, shown)
