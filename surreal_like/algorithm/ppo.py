"""PPO: several passes over each batch of unrolls; the policy stays near the one that acted.

Schulman et al. 2017, Proximal Policy Optimization Algorithms: the clipped surrogate of section 3,
the adaptive KL penalty of section 4, or both; advantages by GAE (Schulman et al. 2016). Details as
in Andrychowicz et al. 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE, Idle, Key, section
from session.errors import ConfigError
from surreal_like.agent.actor_critic_agent import ActorAgent
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.on_policy import (
    ALGO_CONFIG,
    PUBLISH_CONFIG,
    REPLAY_CONFIG,
    ActorCriticLearner,
    explained_variance,
    see,
)
from surreal_like.data.batch import Batch
from surreal_like.dataflow import (
    Flow,
    Loss,
    compute_advantages,
    learn_moments,
    rollouts,
    standardize,
    train_one_step,
    update_kl,
    update_learning_rate,
    update_value_scale,
)
from surreal_like.dataflow.batches import flat_actions, policy_columns, rows_of
from surreal_like.exploration.schedule import SCHEDULE_CONFIG, make_schedule, schedule_section
from surreal_like.learner.target import ADAPTIVE_STEP_CONFIG, AdaptiveStep, KLPenalty
from surreal_like.loss.policy import (
    clipped_surrogate_loss,
    kl_estimate,
    mean_over,
    surrogate_loss,
)
from surreal_like.loss.value import clipped_value_loss, squared_loss
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG

# Defaults of `learner_config.algo`.
_ALGO_CONFIG = ALGO_CONFIG | {
    "gae_lambda": Key(
        0.95,
        "Bias against variance of advantages: 0 relies on the values, 1 on the rewards.",
        within=SHARE,
    ),
    "clip": schedule_section(
        "Probability ratios beyond 1 +- this get no gradient: a schedule; constant 0: no clip.", 0.2
    ),
    "value_clip": Key(
        0.0,
        "Values moved further than this in one batch get no gradient; 0: no limit. "
        "With model.normalize_values in units of the deviation.",
        within=FROM_0,
    ),
    "value_weight": Key(0.5, "Weight of the value loss.", within=FROM_0),
    "kl": section(
        "Penalty on the divergence from the policy that acted.",
        {
            "coefficient": Key(
                0.0,
                "Weight in the first batch, adapted afterwards; 0: no penalty.",
                within=FROM_0,
            ),
            "target": Key(
                0.01,
                "Divergence that the adaptation of the weight aims at.",
                unit="nats",
                within=ABOVE_0,
            ),
            "stop": Key(
                0.0,
                "Ends the passes over a batch above this divergence; 0: all passes.",
                unit="nats",
                within=FROM_0,
            ),
        },
    ),
    "num_sgd_iter": Key(4, "Passes over each batch.", within=FROM_1),
    "minibatches": Key(4, "Minibatches per pass; each makes one update.", within=FROM_1),
    "normalize_advantages": Key(
        True,
        "Normalize advantages to mean 0 and standard deviation 1.",
    ),
    "normalize_advantages_per": Key(
        "batch",
        "Which rows are normalized together: the whole batch once, or each minibatch in each pass "
        "(deviation with n - 1).",
        one_of=("batch", "minibatch"),
        idle=Idle("normalize_advantages", (False,)),
    ),
    "learning_rate": SCHEDULE_CONFIG | {"kind": "constant", "start": 3e-4, "end": 0.0},
    "adaptive_learning_rate": section(
        "Adapts a constant step size to the divergence of the last pass over each batch.",
        ADAPTIVE_STEP_CONFIG,
    ),
}


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": _ALGO_CONFIG,
            "model": ACTOR_CRITIC_CONFIG,
            "replay": REPLAY_CONFIG,
            "parameter_publish": PUBLISH_CONFIG,
        }
    )


class PPOAgent(ActorAgent):
    """Draws actions, and sends the parameters of their policy with them."""

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class PPOLearner(ActorCriticLearner):
    """Raises the probability of actions with a positive advantage, in small steps."""

    def __init__(self, **kwargs: Any) -> None:
        _check(kwargs["learner_config"].algo)
        super().__init__(**kwargs)
        self.clip = make_schedule(self.algo.clip, "learner_config.algo.clip", least=0.0)
        # A schedule that falls to 0 stays a clip there.
        self.clips = any(value for _, value in self.clip.points)
        self.kl_penalty = KLPenalty(self.algo.kl.coefficient, self.algo.kl.target)
        self.adaptive_step: AdaptiveStep | None = None
        if self.algo.adaptive_learning_rate.kl:
            optimizer = self.optimizers["optimizer"]
            self.adaptive_step = AdaptiveStep(
                optimizer.learning_rate, **self.algo.adaptive_learning_rate
            )
            optimizer.schedule = self.adaptive_step

    def execution_plan(self) -> Flow:
        """Makes several updates from each batch of unrolls."""
        algo = self.algo
        flow = rollouts(self).for_each(compute_advantages(self, lambda_=algo.gae_lambda))
        if self.value_scale is not None:
            flow = flow.for_each(update_value_scale(self.value_scale))
        prepare = None
        if algo.normalize_advantages and algo.normalize_advantages_per == "minibatch":
            prepare = standardize("advantages", sample=True)
        elif algo.normalize_advantages:
            flow = flow.for_each(standardize("advantages"))
        passes = {"num_sgd_iter": algo.num_sgd_iter, "minibatches": algo.minibatches}
        train = train_one_step(self, **passes, until=self.far_enough, prepare=prepare)
        flow = flow.for_each(train)
        flow = flow.for_each(update_kl(self.kl_penalty))
        if self.adaptive_step is not None:
            flow = flow.for_each(update_learning_rate(self.adaptive_step))
        return self.adapt_entropy(flow).for_each(learn_moments(self.network))

    def far_enough(self, means: Mapping[str, float]) -> bool:
        """Returns True if a pass has ended too far from the policy that acted."""
        return bool(0.0 < self.algo.kl.stop < means["kl"])

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of rows with advantages."""
        rows = rows_of(batch)
        algo, mask = self.algo, rows.mask
        policy, values = see(self.network, rows)
        log_ratio = policy.log_prob(flat_actions(rows.actions, mask.ndim)) - rows.log_probs
        clip = self.clip.at(self)
        if self.clips:
            gains = clipped_surrogate_loss(log_ratio, rows.advantages, clip)
        else:
            gains = surrogate_loss(log_ratio, rows.advantages)
        if algo.value_clip:
            limit = algo.value_clip * self.value_unit
            errors = clipped_value_loss(values, rows["values"], rows.value_targets, limit)
        else:
            errors = squared_loss(values, rows.value_targets)
        mean = mean_over(mask)
        policy_loss, value_loss = mean(gains), self.per_unit(mean(errors), 2)
        entropy = mean(policy.entropy())
        loss = policy_loss + algo.value_weight * value_loss - self.entropy.at(self) * entropy
        if self.kl_penalty.coefficient:
            divergence = mean(self.network.head.of(policy_columns(rows)).kl(policy))
            loss = loss + self.kl_penalty.coefficient * divergence
        log_ratio = log_ratio.detach()
        clipped = (log_ratio.exp() - 1.0).abs() > (clip if self.clips else 1.0)
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": mean(kl_estimate(log_ratio)),
            "clip_fraction": mean(clipped.float()),
        }
        return Loss(loss, metrics)

    def stats(self, batch: Batch) -> dict[str, Any]:
        """Returns the metrics of a whole batch, as far as it has the columns for them."""
        rows = rows_of(batch)
        metrics: dict[str, Any] = {"clip": self.clip.at(self), **self.value_metrics()}
        metrics["entropy_weight"] = self.entropy.at(self)
        if "values" in rows and "value_targets" in rows:
            metrics["explained_variance"] = explained_variance(
                rows["values"], rows.value_targets, rows.mask
            )
        return metrics

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        saveables = {**super().saveables(), "kl_penalty": self.kl_penalty}
        if self.adaptive_step is not None:
            saveables["adaptive_step"] = self.adaptive_step
        return saveables

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class PPO(Algorithm):
    """Proximal policy optimization, for any actions."""

    agent = PPOAgent
    learner = PPOLearner
    replay = "FIFOReplay"
    central_critic = True


def _check(algo: Config) -> None:
    """Raises ConfigError for settings that do not fit each other."""
    where = "learner_config.algo"
    adaptive, rate = algo.adaptive_learning_rate, algo.learning_rate
    if adaptive.kl and isinstance(rate, Mapping) and rate["kind"] != "constant":
        raise ConfigError(
            f"{where}.adaptive_learning_rate.kl is {adaptive.kl}, but {where}.learning_rate is "
            f"{rate['kind']}: set its kind to constant, or kl to 0"
        )
