"""The agents of a gateway: one for each mode of its sessions, with the same parameters."""

from __future__ import annotations

from collections.abc import Callable
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

_MODES = {"train": AgentMode.training, "act": AgentMode.eval_deterministic}

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

    Attributes:
        modes: of sessions, and of their agents; the first one is the default.
    """

    def __init__(self, make: MakeAgent, env_config: Config, num_streams: int) -> None:
        self.modes = _MODES
        self._make, self._env_config, self._num_streams = make, env_config, num_streams
        self._inferences: dict[str, Inference] = {}
        self._parameters: Parameters | None = None
        spec = parse_action_spec(env_config.action_spec)
        bounded = spec.array.low is not None or spec.array.high is not None
        self._clips = bool(env_config.clip_action) and spec.type == "continuous" and bounded
        self._bounds = spec.array.low, spec.array.high

    @property
    def version(self) -> int:
        """Version of the parameters, 0 before the first."""
        return 0 if self._parameters is None else self._parameters.version

    def load(self, parameters: Parameters) -> None:
        """Loads parameters into all agents, which act with them from the next batch on."""
        self._parameters = parameters
        for inference in self._inferences.values():
            inference.agent.load(parameters)

    def agent(self, mode: str) -> Agent:
        """Returns the agent of a mode."""
        return self._inference(mode).agent

    def _inference(self, mode: str) -> Inference:
        found = self._inferences.get(mode)
        if found is None:
            # Making an agent seeds torch: the noise of the others must not be repeated.
            with torch.random.fork_rng(devices=[]):
                agent = self._make(self.modes[mode])
            if self._parameters is not None:
                agent.load(self._parameters)
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
