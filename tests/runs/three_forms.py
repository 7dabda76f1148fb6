"""One algorithm in three forms: an actor-critic whose agent computes the advantages."""

from __future__ import annotations

from typing import Any

import torch

from surreal_like import build_algorithm
from surreal_like.agent.actor_critic_agent import ActorAgent
from surreal_like.agent.postprocess import compute_advantages
from surreal_like.algorithm.builder import ActorCritic
from surreal_like.algorithm.on_policy import ActorCriticLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Flow, rollouts, train_one_step
from surreal_like.experience.chunk import Chunk
from surreal_like.loss.policy import masked_mean, policy_gradient_loss


def advantages(agent: Any, chunk: Chunk) -> Chunk:
    obs = torch.from_numpy(chunk.columns["obs"])
    with torch.inference_mode():
        _, values = agent.network.unroll(obs, None, torch.zeros(chunk.shape))
    gamma = agent.learner_config.algo.gamma
    return compute_advantages(chunk, values.numpy(), gamma=gamma, lambda_=0.95)


def loss(learner: Any, batch: Batch) -> torch.Tensor:
    log_prob, entropy, values, _ = learner.evaluate_actions(batch)
    gains = policy_gradient_loss(log_prob, batch.extras["advantages"])
    errors = (batch.extras["value_targets"] - values).square()
    return masked_mean(gains + 0.5 * errors - 0.01 * entropy, batch.mask)


def plan(learner: Any) -> Flow:
    return rollouts(learner).for_each(train_one_step(learner))


Built = build_algorithm("Built", loss, postprocess_fn=advantages, execution_plan=plan)


class FormAgent(ActorAgent):
    def postprocess(self, chunk: Chunk) -> Chunk:
        return advantages(self, chunk)


class OwnLearner(ActorCriticLearner):
    def learn(self, batch: Batch) -> dict[str, Any]:
        optimizer = self.optimizers["optimizer"]
        optimizer.begin(self)
        total = loss(self, batch)
        metrics = {"loss": total.detach(), "grad_norm": optimizer.step(total)}
        metrics["skipped"] = self.optimizers.skipped
        self.optimizers.report(metrics)
        return metrics


class OwnLearn(ActorCritic):
    agent = FormAgent
    learner = OwnLearner


class PlannedLearner(ActorCriticLearner):
    def loss(self, batch: Batch) -> torch.Tensor:
        return loss(self, batch)

    def execution_plan(self) -> Flow:
        return plan(self)


class Planned(ActorCritic):
    agent = FormAgent
    learner = PlannedLearner
