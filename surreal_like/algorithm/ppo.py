"""PPO: several passes over each batch of unrolls; the policy stays near the one that acted.

Schulman et al. 2017, Proximal Policy Optimization Algorithms: the clipped surrogate of section 3,
the adaptive KL penalty of section 4, or both; advantages by GAE (Schulman et al. 2016). Details as
in Andrychowicz et al. 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from session import nest
from session.config import Config
from session.errors import ConfigError
from session.seeding import component_seed
from surreal_like.agent.actor import ActorAgent, make_network
from surreal_like.algorithm.base import Algorithm
from surreal_like.data.batch import Batch
from surreal_like.exploration.schedule import SCHEDULE_CONFIG, make_schedule
from surreal_like.learner.base import Learner
from surreal_like.learner.on_policy import (
    KLPenalty,
    Means,
    Rows,
    explained_variance,
    state_before,
)
from surreal_like.learner.optimizer import Optimizer
from surreal_like.loss.policy import (
    clipped_surrogate_loss,
    kl_estimate,
    masked_mean,
    normalized,
    surrogate_loss,
)
from surreal_like.loss.returns import gae
from surreal_like.loss.value import clipped_value_loss, squared_loss
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG, ActorCritic


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                # Bias against variance of advantages: 0 relies on the values, 1 on the rewards.
                "gae_lambda": 0.95,
                # Probability ratios beyond 1 +- this get no gradient; 0: no clip.
                "clip": 0.2,
                # Values moved further than this in one batch get no gradient; 0: no limit.
                "value_clip": 0.0,
                # Weight of the value loss.
                "value_weight": 0.5,
                # Weight of the entropy: a schedule.
                "entropy": {**SCHEDULE_CONFIG, "kind": "constant", "start": 0.0, "end": 0.0},
                # Penalty on the divergence from the policy that acted.
                "kl": {
                    # Weight in the first batch, adapted afterwards; 0: no penalty.
                    "coefficient": 0.0,
                    # Divergence that the adaptation of the weight aims at [nats].
                    "target": 0.01,
                    # Ends the passes over a batch above this divergence [nats]; 0: all passes.
                    "stop": 0.0,
                },
                # Passes over each batch.
                "num_sgd_iter": 4,
                # Minibatches per pass; each makes one update.
                "minibatches": 4,
                # Normalize the advantages of each batch to mean 0 and standard deviation 1.
                "normalize_advantages": True,
                # Step size of Adam: a schedule.
                "learning_rate": {**SCHEDULE_CONFIG, "kind": "constant", "start": 3e-4, "end": 0.0},
                # Added to the root of Adam's second moment.
                "adam_epsilon": 1e-5,
                # Gradients with a larger norm are scaled to this norm; 0: never.
                "max_grad_norm": 0.5,
                # After each unroll, agents wait for a version that has learned from it.
                "synchronous": False,
            },
            "model": dict(ACTOR_CRITIC_CONFIG),
            "replay": {
                # Streams per batch: whole unrolls of sender.flush_iteration steps [streams].
                "batch_size": 16,
                # Rows waiting for the learner, all shards together, before agents wait [rows].
                "capacity": 10_000,
                # Unrolls of parameters with a larger lag are dropped [versions]; 0: none.
                "evict_rule": {"max_version_lag": 8},
            },
            "parameter_publish": {
                # Shortest time between two publications [seconds].
                "min_publish_interval": 0.0,
            },
        }
    )


class PPOAgent(ActorAgent):
    """Draws actions, and sends the parameters of their policy with them."""

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class PPOLearner(Learner):
    """Raises the probability of actions with a positive advantage, in small steps."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.algo = algo
        _check(algo)
        self.network = make_network(self.learner_config, self.env_config).to(self.device)
        self.entropy = make_schedule(algo.entropy, "learner_config.algo.entropy")
        self.learning_rate = make_schedule(algo.learning_rate, "learner_config.algo.learning_rate")
        self.optimizer = Optimizer(
            self.network,
            learning_rate=self.learning_rate.at(self),
            max_grad_norm=algo.max_grad_norm,
            epsilon=algo.adam_epsilon,
        )
        self.kl_penalty = KLPenalty(algo.kl.coefficient, algo.kl.target)
        seed = component_seed(self.session_config.seed, "learner", 1)
        self.generator = torch.Generator().manual_seed(seed)

    def learn(self, batch: Batch) -> dict[str, Any]:
        """Makes several updates from one batch of unrolls."""
        rows = self.prepare(batch)
        self.optimizer.learning_rate = self.learning_rate.at(self)
        entropy_weight = self.entropy.at(self)
        means, passes = Means(), 0
        for _ in range(self.algo.num_sgd_iter):
            part = Means()
            for minibatch in self.minibatches(rows):
                part.add(self.update(minibatch, entropy_weight))
            means.join(part)
            passes += 1
            if 0.0 < self.algo.kl.stop < part.value("kl"):
                break
        self.kl_penalty.adapt(part.value("kl"))
        # Only after the updates: the acting policy normalized observations by the old moments.
        self.network.learn_moments(nest.map(lambda x: x[:-1].flatten(0, 1), batch.obs))
        return {
            **means.values(),
            "explained_variance": explained_variance(rows.values, rows.targets, rows.mask),
            "passes": float(passes),
            "kl_coefficient": self.kl_penalty.coefficient,
            "entropy_weight": entropy_weight,
            "learning_rate": self.optimizer.learning_rate,
            "nan_updates": self.optimizer.nan_updates,
        }

    @torch.no_grad()
    def prepare(self, batch: Batch) -> Rows:
        """Returns the rows with an action, each with its advantage and value target."""
        _, values = self.network.unroll(batch.obs, state_before(batch), batch.first)
        advantages = gae(
            batch.rewards,
            batch.discounts,
            values[:-1],
            values[-1],
            lambda_=self.algo.gae_lambda,
            mask=batch.mask,
        )
        targets = values[:-1] + advantages
        if self.algo.normalize_advantages:
            advantages = normalized(advantages, batch.mask)
        return Rows.of(
            batch,
            advantages=advantages,
            values=values[:-1],
            targets=targets,
            policy_of=self.network.head.of,
        )

    def minibatches(self, rows: Rows) -> Iterator[Rows]:
        """Yields the rows in random order, in parts that differ by one row at most.

        With a memory, whole streams are shuffled and divided instead of rows.
        """
        order = torch.randperm(len(rows), generator=self.generator).to(self.device)
        for part in order.tensor_split(min(self.algo.minibatches, len(rows))):
            yield rows[part]

    def update(self, rows: Rows, entropy_weight: float) -> dict[str, float | torch.Tensor]:
        """Makes one update; returns its metrics."""
        algo, mask = self.algo, rows.mask
        policy, values = rows.seen_by(self.network)
        log_ratio = policy.log_prob(rows.actions) - rows.log_probs
        if algo.clip:
            gains = clipped_surrogate_loss(log_ratio, rows.advantages, algo.clip)
        else:
            gains = surrogate_loss(log_ratio, rows.advantages)
        if algo.value_clip:
            errors = clipped_value_loss(values, rows.values, rows.targets, algo.value_clip)
        else:
            errors = squared_loss(values, rows.targets)
        policy_loss, value_loss = masked_mean(gains, mask), masked_mean(errors, mask)
        entropy = masked_mean(policy.entropy(), mask)
        loss = policy_loss + algo.value_weight * value_loss - entropy_weight * entropy
        if self.kl_penalty.coefficient:
            divergence = masked_mean(self.network.head.of(rows.policy).kl(policy), mask)
            loss = loss + self.kl_penalty.coefficient * divergence
        grad_norm = self.optimizer.step(loss)
        log_ratio = log_ratio.detach()
        clipped = (log_ratio.exp() - 1.0).abs() > (algo.clip or 1.0)
        return {
            "loss": loss.detach(),
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": masked_mean(kl_estimate(log_ratio), mask),
            "clip_fraction": masked_mean(clipped.float(), mask),
            "grad_norm": grad_norm,
            "skipped": float(self.optimizer.skipped),
        }

    def module_dict(self) -> dict[str, ActorCritic]:
        """Returns the network that agents act with."""
        return {"network": self.network}

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        return {"optimizer": self.optimizer, "kl_penalty": self.kl_penalty}

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class PPO(Algorithm):
    """Proximal policy optimization, for any actions."""

    agent = PPOAgent
    learner = PPOLearner
    replay = "surreal_like.replay.fifo_replay:FIFOReplay"


def _check(algo: Config) -> None:
    """Raises ConfigError for an invalid number."""
    where = "learner_config.algo"
    for key in ("num_sgd_iter", "minibatches"):
        if algo[key] < 1:
            raise ConfigError(f"{where}.{key} is {algo[key]}, expected 1 or more")
    for key in ("clip", "value_clip", "value_weight", "max_grad_norm"):
        if algo[key] < 0:
            raise ConfigError(f"{where}.{key} is {algo[key]}, below 0")
    if not 0 <= algo.gae_lambda <= 1:
        raise ConfigError(f"{where}.gae_lambda is {algo.gae_lambda}, expected 0 to 1")
    for key in ("coefficient", "stop"):
        if algo.kl[key] < 0:
            raise ConfigError(f"{where}.kl.{key} is {algo.kl[key]}, below 0")
    if algo.kl.target <= 0:
        raise ConfigError(f"{where}.kl.target is {algo.kl.target}, expected more than 0")
