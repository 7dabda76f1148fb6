"""Implicit Q-learning: values of the better actions in the data, and a policy that prefers them.

Kostrikov et al. 2021, Offline Reinforcement Learning with Implicit Q-Learning. No action is valued
that the data does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from session.config import Config
from session.config.key import FROM_0, SHARE_ABOVE_0, Key
from session.errors import ConfigError
from surreal_like.addons.offline.bc import BCAgent
from surreal_like.addons.offline.headed import (
    OFFLINE_SESSION,
    REPLAY_CONFIG,
    Headed,
    TanhGaussianHead,
)
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.continuous import MODEL_CONFIG, ContinuousLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import (
    Flow,
    Loss,
    learn_moments,
    replay,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.exploration.schedule import schedule_section
from surreal_like.learner.target import TargetNetwork
from surreal_like.loss.policy import advantage_weights
from surreal_like.loss.value import expectile_loss, td_target
from surreal_like.network.continuous import ActionScale
from surreal_like.network.head import ValueHead

_CRITIC_RATE = "learner_config.algo.critic_learning_rate"


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                "learning_rate": schedule_section(
                    "Step size of Adam for the policy: a schedule.", 3e-4
                ),
                "critic_learning_rate": schedule_section(
                    "The same for critics and state values.", 3e-4
                ),
                "max_grad_norm": Key(
                    0.0,
                    "Gradients with a larger norm are scaled to this norm; 0: never.",
                    within=FROM_0,
                ),
                "expectile": Key(
                    0.7,
                    "Expectile of the values of actions that a state value is: 0.5 their mean, "
                    "near 1 their largest; below 1.",
                    within=SHARE_ABOVE_0,
                ),
                "temperature": Key(
                    3.0,
                    "The policy counts each action by exp(temperature * advantage), at most 100; "
                    "0: all alike.",
                    within=FROM_0,
                ),
                "tau": Key(
                    0.005,
                    "Share by which the target critics move towards the trained ones at each "
                    "update.",
                    within=SHARE_ABOVE_0,
                ),
            },
            "model": MODEL_CONFIG,
            "replay": REPLAY_CONFIG,
        }
    )


def make_policy(obs_spec: Mapping[str, Any], size: int, model: Mapping[str, Any]) -> Headed:
    """Builds the policy over vectors from -1 to 1 of this size; agent and learner use the same."""
    return Headed(obs_spec, model, lambda width: TanhGaussianHead(width, size))


class IQLAgent(BCAgent):
    """Draws actions, in their bounds; in `eval_deterministic` it takes the mean."""

    @staticmethod
    def make_model(learner_config: Config, env_config: Config) -> Headed:
        size = ActionScale(env_config.action_spec).size
        return make_policy(env_config.obs_spec, size, learner_config.model)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = ActionScale(self.env_config.action_spec)

    def to_env(self, actions: torch.Tensor) -> torch.Tensor:
        return self.scale.to_env(actions)

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class IQLLearner(ContinuousLearner[Headed]):
    """Learns state values from critics, critics from state values, and a policy from both.

    Attributes:
        value: computes state values `[B]`.
        target: slowly follows the critics; state values and advantages are computed from it.
    """

    policy_class = staticmethod(make_policy)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo, model = self.learner_config.algo, self.learner_config.model
        self.expectile: float = algo.expectile
        self.beta: float = algo.temperature
        self.value = Headed(self.env_config.obs_spec, model, ValueHead).to(self.device)
        self.add_optimizer(
            "value",
            self.value,
            algo.critic_learning_rate,
            where=_CRITIC_RATE,
            max_grad_norm=algo.max_grad_norm,
            metrics=("", ""),
        )
        self.target = TargetNetwork(self.critics, mode="soft", tau=algo.tau)

    def execution_plan(self) -> Flow:
        """Updates critics, state values and policy from each batch of transitions."""
        return (
            replay(self)
            .for_each(train_one_step(self, self.critic_loss))
            .for_each(update_priorities(self))
            .for_each(train_one_step(self, self.policy_loss))
            .for_each(learn_moments(self.policy, self.critics, self.value))
            .for_each(update_target(self.target))
        )

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> torch.Tensor:
        """Returns the targets `[B]` of both critics: equation 6."""
        return td_target(batch.rewards, batch.discounts, self.value(batch.obs_next))

    def policy_loss(self, batch: Batch) -> Loss:
        """Returns the losses of state values and policy: equations 5 and 7."""
        actions = self.scale.to_unit(batch.actions)
        with torch.no_grad():
            q = self.target.module(batch.obs, actions).amin(0)
        advantages = q - self.value(batch.obs)
        log_prob = self.policy(batch.obs).log_prob(actions)
        value_losses = expectile_loss(advantages, self.expectile)
        policy_losses = -advantage_weights(advantages, self.beta) * log_prob
        value, policy = ((x * batch.weights).mean() for x in (value_losses, policy_losses))
        metrics = {
            "policy_loss": policy.detach(),
            "value_loss": value.detach(),
            "advantage": advantages.detach().mean(),
        }
        return Loss({"value": value, "policy": policy}, metrics)

    def saveables(self) -> dict[str, Any]:
        return super().saveables() | {"value": self.value, "target": self.target}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class IQL(Algorithm):
    """Implicit Q-learning, for continuous actions within bounds."""

    agent = IQLAgent
    learner = IQLLearner
    session_config = OFFLINE_SESSION
    actions = ("continuous",)
    bounded = True

    @classmethod
    def validate_config(
        cls, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        """Raises ConfigError for an expectile of 1."""
        if learner_config.algo.expectile >= 1.0:
            raise ConfigError(
                f"learner_config.algo.expectile is {learner_config.algo.expectile}, expected above "
                "0 and below 1, such as 0.7"
            )
