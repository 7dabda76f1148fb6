"""An algorithm that learns from sequences: Q-learning over one step, without a memory."""

from __future__ import annotations

import torch

from session.config import Config
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import (
    Flow,
    Loss,
    replay,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.loss.sequence import sequence_loss, sequence_priority


class SequenceLearner(DQNLearner):
    """Moves Q of each learned row towards reward plus discounted value of the next row."""

    def execution_plan(self) -> Flow:
        return (
            replay(self)
            .for_each(train_one_step(self))
            .for_each(update_target(self.target))
            .for_each(update_priorities(self))
        )

    def loss(self, batch: Batch) -> Loss:
        rows, width = batch.first.shape
        q = self.q_network(batch.obs.flatten(0, 1)).view(rows, width, -1)
        with torch.no_grad():
            value = self.target.module(batch.obs.flatten(0, 1)).view(rows, width, -1).amax(-1)
        taken = q[:-1].gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
        error = batch.rewards + batch.discounts * value[1:] - taken
        priorities = sequence_priority(error, batch.mask, self.learner_config.replay.priority.eta)
        return Loss(sequence_loss(error, batch.mask, batch.weights), {}, priorities)


class SequenceDQN(DQN):
    """DQN over stored sequences."""

    agent = DQNAgent
    learner = SequenceLearner
    replay = "surreal_like.replay.sequence_replay:SequenceReplay"

    @classmethod
    def default_config(cls) -> Config:
        config = DQN.default_config()
        config.replay.type = cls.replay
        return config
