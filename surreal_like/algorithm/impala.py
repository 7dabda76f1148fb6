"""IMPALA: updates from unrolls, corrected for policy changes since acting.

Espeholt et al. 2018, IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures. Losses are means over rows, not sums as in the paper: step sizes differ accordingly.
"""

from __future__ import annotations

import torch

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE, Key, section
from surreal_like.agent.actor_critic_agent import ActorAgent
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.on_policy import (
    ENTROPY_TARGET,
    PUBLISH_CONFIG,
    REPLAY_CONFIG,
    ActorCriticLearner,
    explained_variance,
)
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss
from surreal_like.dataflow.batches import flat_actions, policy_columns
from surreal_like.exploration.schedule import schedule_section
from surreal_like.loss.policy import mean_over, policy_gradient_loss
from surreal_like.loss.value import squared_loss
from surreal_like.loss.vtrace import VTrace, vtrace
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG

# Defaults of `learner_config.algo`.
_ALGO_CONFIG = Config(
    {
        "vtrace_lambda": Key(
            1.0,
            "Mixes n-step returns as TD(lambda) does: 1 is V-trace as published.",
            within=SHARE,
        ),
        "clip_c": Key(
            1.0,
            "Upper bound of the weights c, which set how far corrections propagate backwards.",
            within=ABOVE_0,
        ),
        "clip_rho": Key(
            1.0,
            "Upper bound of the weights rho, which set the fixed point of the values; 0: none.",
            within=FROM_0,
        ),
        "clip_pg_rho": Key(
            1.0,
            "Upper bound of the weights of the policy gradient; 0: none.",
            within=FROM_0,
        ),
        "value_weight": Key(0.5, "Weight of the value loss.", within=FROM_0),
        "num_sgd_iter": Key(
            1,
            "Passes over each batch, each with targets and advantages of its own.",
            within=FROM_1,
        ),
        "entropy": schedule_section("Weight of the entropy: a schedule.", 0.01),
        "entropy_target": ENTROPY_TARGET,
        "learning_rate": schedule_section("Step size: a schedule.", 1e-3),
        "optimizer": section(
            "Optimizer of the network.",
            {
                "rule": Key(
                    "adam",
                    "adam, or rmsprop_tf: RMSProp as TensorFlow 1 computes it.",
                    one_of=("adam", "rmsprop_tf"),
                ),
                "epsilon": Key(
                    1e-5,
                    "adam adds it to the root, rmsprop_tf inside the root; the paper uses "
                    "0.1 there.",
                    within=ABOVE_0,
                ),
            },
        ),
        "max_grad_norm": Key(
            1.0,
            "Gradients with a larger norm are scaled to this norm; 0: never.",
            within=FROM_0,
        ),
    }
)


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": _ALGO_CONFIG,
            "model": ACTOR_CRITIC_CONFIG | {"shared": True},
            "replay": REPLAY_CONFIG
            | {"evict_rule": REPLAY_CONFIG.evict_rule | {"max_version_lag": 0}},
            "parameter_publish": PUBLISH_CONFIG,
        }
    )


class ImpalaAgent(ActorAgent):
    """Draws actions, and sends the parameters of their policy with them."""

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class ImpalaLearner(ActorCriticLearner):
    """Follows the policy gradient on V-trace advantages; moves values towards V-trace targets."""

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of a batch of unrolls."""
        log_prob, entropies, values, bootstrap = self.evaluate_actions(batch)
        with torch.no_grad():
            acted = self.network.head.of(policy_columns(batch))
            log_rhos = log_prob.detach() - acted.log_prob(flat_actions(batch.actions))
            corrected = self.correct(batch, log_rhos, values, bootstrap)
        entropy_weight = self.entropy.at(self)
        # Advantages in units of the values too, or one of both losses drowns the other: Hessel et
        # al. 2019, Multi-task deep reinforcement learning with PopArt, equation 6.
        mean = mean_over(batch.mask)
        gains = policy_gradient_loss(log_prob, corrected.advantages)
        policy_loss = self.per_unit(mean(gains))
        batch["value_targets"] = corrected.targets
        errors = squared_loss(values, corrected.targets)
        value_loss = self.per_unit(mean(errors), 2)
        entropy = mean(entropies)
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "rho": mean(log_rhos.exp()),
            "explained_variance": explained_variance(
                values.detach(), corrected.targets, batch.mask
            ),
            "entropy_weight": entropy_weight,
            **self.value_metrics(),
        }
        total = policy_loss + self.algo.value_weight * value_loss - entropy_weight * entropy
        return Loss(total, metrics)

    def correct(
        self, batch: Batch, log_rhos: torch.Tensor, values: torch.Tensor, bootstrap: torch.Tensor
    ) -> VTrace:
        """Returns targets and advantages `[T, B]`, from values `[T, B]` and the bootstrap `[B]`."""
        algo = self.algo
        return vtrace(
            log_rhos,
            batch.rewards,
            batch.discounts,
            values,
            bootstrap,
            mask=batch.mask,
            lambda_=algo.vtrace_lambda,
            clip_c=algo.clip_c,
            clip_rho=algo.clip_rho or None,
            clip_pg_rho=algo.clip_pg_rho or None,
        )

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class Impala(Algorithm):
    """Importance weighted actor-learner: V-trace, for any actions."""

    agent = ImpalaAgent
    learner = ImpalaLearner
    replay = "FIFOReplay"
    central_critic = True
