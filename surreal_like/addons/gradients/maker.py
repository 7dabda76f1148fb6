"""Gradients that an agent sends in place of its unrolls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from session.errors import ConfigError
from session.nest import Array
from session.process.context import Context
from surreal_like.addons.gradients.source import (
    AgentGradients,
    columns_of_gradient,
    row_of_gradient,
)
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.data.batch import Sampled, make_batch
from surreal_like.data.columns import GRADIENT, GRADIENT_ROWS
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import acting_of
from surreal_like.network.flat import load_flat, read_flat, to_tensor
from surreal_like.replay.tuple_replay import ChunkSamples

if TYPE_CHECKING:
    from surreal_like.learner.learner import Learner


class GradientMaker:
    """Makes of each unroll of an agent one row: the gradient of the learner's loss.

    It has a learner of its own, on the CPU, with the parameters of the agent, and runs the part of
    its execution plan that belongs to agents: see `async_gradients`.

    Args:
        agent: acts, and loads parameters between two unrolls only.
        learner: class of the learner.

    Raises:
        ConfigError: the plan takes no gradients of agents.
    """

    def __init__(self, agent: Agent, learner: type[Learner]) -> None:
        self._agent = agent
        config = agent.learner_config.copy()
        config.device = "cpu"
        configs = {"env_config": agent.env_config, "session_config": agent.session_config}
        self._learner = learner(learner_config=config, **configs)
        found = [part for part in self._learner.flow.parts() if isinstance(part, AgentGradients)]
        if len(found) != 1:
            raise ConfigError(
                "learner_config.gradients_at is agent, but the execution plan has no "
                "async_gradients(learner): use it, or set gradients_at to learner"
            )
        self._source = found[0]
        self._size = sum(each.size for each in self._learner.optimizers.values())
        self._samples = ChunkSamples(config, agent.env_config)
        self._version = 0

    def __call__(self, chunk: Chunk) -> Chunk:
        """Returns the chunk to send for an unroll, one row of one stream.

        Args:
            chunk: an unroll ``[T + 1, N]``; shorter where the agent ends. Its last row has no
                action, and only its value is used.

        Raises:
            DataError: the gradient is not finite.
        """
        columns: dict[str, Any] = {
            GRADIENT: np.zeros(self._size, np.float32),
            GRADIENT_ROWS: np.array(0, np.int64),
        }
        if chunk.shape[0] > 1:
            columns = self._compute(chunk)
        if not np.isfinite(columns[GRADIENT]).all():
            raise DataError(
                f"the gradient of an unroll is not finite, with version {self._agent.version}: "
                "lower the learning rate or look at the rewards"
            )
        row = row_of_gradient(columns, chunk.columns["version"].min())
        return replace(chunk, columns=row, streams=[0], tail=False, overlap=0, lead_in={})

    def _compute(self, chunk: Chunk) -> dict[str, Array]:
        learner, agent = self._learner, self._agent
        if self._version != agent.version:
            load_flat(learner.module_dict(), read_flat(agent.module_dict()))
            self._version = agent.version
        learner.env_steps, learner.iteration = agent.progress
        sampled = Sampled(self._samples(chunk), 0, 0, {})
        batch = make_batch(to_tensor(dict(sampled.columns)))
        batch.origin = sampled
        return columns_of_gradient(learner, self._source.compute(batch), batch)


def send_gradients(context: Context, agent: Agent, learner: type[Learner]) -> None:
    """Makes the sender of an agent send gradients if `learner_config.gradients_at` is agent."""
    training = agent.agent_mode is AgentMode.training
    if training and agent.learner_config.gradients_at == "agent":
        acting_of(context).pack = GradientMaker(agent, learner)
