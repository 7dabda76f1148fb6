"""A3C: agents make gradients of their own unrolls; the learner applies them in order of arrival.

Mnih et al. 2016, Asynchronous Methods for Deep Reinforcement Learning: advantage actor-critic with
shared statistics of RMSProp. Losses are sums over the rows of an unroll, as there, and means over
the streams of an agent: step sizes differ from those of the other algorithms accordingly.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, Key, section
from session.errors import ConfigError
from surreal_like.agent.actor_critic_agent import ActorAgent
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.on_policy import PUBLISH_CONFIG, ActorCriticLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import (
    Flow,
    Loss,
    apply_gradients,
    async_gradients,
    compensate_delay,
    compute_gradients,
    learn_moments,
    rollouts,
)
from surreal_like.exploration.schedule import SCHEDULE_CONFIG, schedule_section
from surreal_like.loss.policy import actor_critic_sums
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG

# Defaults of `learner_config.algo`.
_ALGO_CONFIG = Config(
    {
        "reward_clip": 1.0,
        "value_weight": Key(0.25, "Weight of the squared errors of the values.", within=FROM_0),
        "entropy": schedule_section("Weight of the entropy: a schedule.", 0.01),
        "learning_rate": section(
            "Step size: a schedule.",
            SCHEDULE_CONFIG
            | {
                "kind": "linear",
                "by": "env_steps",
                "start": 7e-4,
                "end": 0.0,
                "steps": 100_000_000,
            },
            within=FROM_0,
        ),
        "optimizer": section(
            "Optimizer of the network.",
            {
                "rule": Key(
                    "rmsprop_tf",
                    "rmsprop_tf: RMSProp as TensorFlow 1 computes it; or adam.",
                    one_of=("adam", "rmsprop_tf"),
                ),
                "epsilon": Key(
                    0.1,
                    "rmsprop_tf adds it inside the root, adam to the root.",
                    within=ABOVE_0,
                ),
            },
        ),
        "max_grad_norm": Key(
            40.0,
            "Gradients with a larger norm are scaled to this norm, at the agent; 0: never.",
            within=FROM_0,
        ),
        "delay_compensation": section(
            "Correction of gradients for the updates since their parameters were published.",
            {
                "weight": Key(0.0, "0: no correction.", within=FROM_0),
                "adaptive": Key(
                    False,
                    "Divide the weight by the root of a running mean of squared gradients.",
                ),
                "history": Key(
                    20,
                    "Published versions whose parameters are kept.",
                    unit="versions",
                    within=FROM_1,
                ),
            },
        ),
    }
)


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "gradients_at": Key(
                "agent",
                "Place where gradients are computed: agent, from its own unrolls; or learner.",
            ),
            "algo": _ALGO_CONFIG,
            "model": ACTOR_CRITIC_CONFIG | {"shared": True},
            "replay": {
                "batch_size": Key(
                    1, "Gradients per batch; each is applied by itself.", unit="gradients"
                ),
                "capacity": Key(
                    64, "Gradients waiting for the learner before agents wait.", unit="gradients"
                ),
                "evict_rule": {
                    "max_version_lag": Key(
                        20,
                        "Gradients of parameters with a larger lag are dropped; 0: none.",
                        unit="versions",
                    )
                },
            },
            "parameter_publish": PUBLISH_CONFIG,
        }
    )


class A3CAgent(ActorAgent):
    """Draws actions, and makes gradients of its unrolls."""

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class A3CLearner(ActorCriticLearner):
    """Follows the policy gradient on returns up to the end of each unroll."""

    def __init__(self, **kwargs: Any) -> None:
        _check(kwargs["learner_config"])
        super().__init__(**kwargs)

    def execution_plan(self) -> Flow:
        """Makes one update from each gradient; agents compute them, or the learner."""
        if self.learner_config.gradients_at == "agent":
            flow: Flow = async_gradients(self)
        else:
            flow = rollouts(self).for_each(compute_gradients(self))
        if self.algo.delay_compensation.weight:
            flow = flow.for_each(compensate_delay(self, **self.algo.delay_compensation))
        return flow.for_each(apply_gradients(self)).for_each(learn_moments(self.network))

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of a batch of unrolls."""
        sums = actor_critic_sums(
            *self.evaluate_actions(batch),
            rewards=batch.rewards,
            discounts=batch.discounts,
            mask=batch.mask,
        )
        entropy_weight = self.entropy.at(self)
        rows = batch.mask.sum().clamp(min=1.0)
        means = {name: each.detach().sum() / rows for name, each in sums._asdict().items()}
        metrics = {
            "policy_loss": means["policy"],
            "value_loss": means["value"],
            "entropy": means["entropy"],
            "entropy_weight": entropy_weight,
        }
        value_weight = self.algo.value_weight
        return Loss(sums.total(entropy_weight=entropy_weight, value_weight=value_weight), metrics)

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class A3C(Algorithm):
    """Asynchronous advantage actor-critic, for any actions."""

    agent = A3CAgent
    learner = A3CLearner
    replay = "FIFOReplay"
    central_critic = True
    session_config = MappingProxyType(
        {
            "agent": {"fetch_parameter_mode": "step:5", "fetch_interval_seconds": 0.0},
            "sender": {"flush_iteration": 20},
        }
    )


def _check(learner_config: Config) -> None:
    """Raises ConfigError for values in units of their deviation."""
    if learner_config.model.normalize_values:
        raise ConfigError(
            "learner_config.model.normalize_values is true, but gradients are made before their "
            "returns are counted: set it to false"
        )
