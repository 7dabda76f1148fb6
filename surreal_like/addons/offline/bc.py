"""Behaviour cloning: the policy that most likely took the actions of the rows.

Pomerleau 1991, Efficient Training of Artificial Neural Networks for Autonomous Navigation.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from session.config import Config
from session.config.key import FROM_0, Key
from surreal_like.addons.offline.headed import (
    LEAST_LOG_STD,
    OFFLINE_SESSION,
    REPLAY_CONFIG,
    Headed,
)
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.continuous import MODEL_CONFIG
from surreal_like.data.batch import Batch
from surreal_like.data.spec import parse_action_spec
from surreal_like.dataflow import (
    Flow,
    Loss,
    learn_moments,
    replay,
    train_one_step,
    update_priorities,
)
from surreal_like.exploration.schedule import schedule_section
from surreal_like.learner.learner import Learner
from surreal_like.network.actor_critic import POLICY_CONFIG
from surreal_like.network.distribution import Gaussian
from surreal_like.network.head import make_policy_head


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                "learning_rate": schedule_section("Step size of Adam: a schedule.", 1e-3),
                "max_grad_norm": Key(
                    0.0,
                    "Gradients with a larger norm are scaled to this norm; 0: never.",
                    within=FROM_0,
                ),
            },
            "model": MODEL_CONFIG | POLICY_CONFIG,
            "replay": REPLAY_CONFIG,
        }
    )


def make_policy(learner_config: Config, env_config: Config) -> Headed:
    """Builds the policy over the actions of the environment; agent and learner use the same one."""
    model = learner_config.model
    options = {key: model[key] for key in POLICY_CONFIG}
    return Headed(
        env_config.obs_spec,
        model,
        lambda width: make_policy_head(width, env_config.action_spec, **options),
    )


class BCAgent(Agent):
    """Draws actions from its policy; in `eval_deterministic` it takes the most likely ones."""

    make_model = staticmethod(make_policy)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.policy = self.make_model(self.learner_config, self.env_config).freeze()
        self.action_spec = parse_action_spec(self.env_config.action_spec)

    def act(self, obs: Any) -> npt.NDArray[Any]:
        """Returns the actions `[N, *dim]` of observations `[N, ...]`."""
        policy = self.policy(obs)
        greedy = self.agent_mode is AgentMode.eval_deterministic
        actions = policy.mode() if greedy else policy.sample(self.generator)
        acted: npt.NDArray[Any] = self.to_env(actions).numpy()
        return acted

    def to_env(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the environment's actions `[N, *dim]` of those of the policy."""
        spec = self.action_spec
        return actions.reshape(-1, *spec.dim) if spec.type == "continuous" else actions

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that acts."""
        return {"policy": self.policy}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class BCLearner(Learner):
    """Raises the likelihood of the recorded actions under the policy."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.policy = make_policy(self.learner_config, self.env_config).to(self.device)
        rate, limit = algo.learning_rate, algo.max_grad_norm
        self.add_optimizer("optimizer", self.policy, rate, max_grad_norm=limit)

    def execution_plan(self) -> Flow:
        """Makes one update from each batch of rows."""
        return (
            replay(self)
            .for_each(train_one_step(self))
            .for_each(update_priorities(self))
            .for_each(learn_moments(self.policy))
        )

    def loss(self, batch: Batch) -> Loss:
        """Returns minus the mean log-probability of the actions; the priorities grow with it.

        They are log(1 + 1/p), as a density p may be above 1.
        """
        policy, actions = self.policy(batch.obs), batch.actions
        if isinstance(policy, Gaussian):
            policy = Gaussian(policy.mean, policy.log_std.clamp(min=LEAST_LOG_STD))
        if actions.is_floating_point():
            actions = actions.reshape(len(actions), -1)
        losses = -policy.log_prob(actions)
        return Loss((losses * batch.weights).mean(), {}, functional.softplus(losses.detach()))

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that agents act with."""
        return {"policy": self.policy}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class BC(Algorithm):
    """Behaviour cloning, for any actions."""

    agent = BCAgent
    learner = BCLearner
    session_config = OFFLINE_SESSION
