"""SAC: off-policy learning of a stochastic policy with an entropy bonus.

Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications: two critics, of which the lower
value is used, and a temperature that keeps the entropy of the policy near a target. For recorded
data: Kumar et al. 2020, Conservative Q-Learning for Offline Reinforcement Learning (CQL).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE_ABOVE_0, Idle, Key, section
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.continuous import (
    MODEL_CONFIG,
    REPLAY_CONFIG,
    SESSION_CONFIG,
    ContinuousLearner,
)
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
from surreal_like.loss.policy import soft_policy_loss, soft_value, temperature_loss
from surreal_like.loss.value import sampled_conservative_loss, td_target
from surreal_like.network.continuous import ActionScale, SquashedPolicy
from surreal_like.network.distribution import SquashedGaussian


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                "learning_rate": schedule_section(
                    "Step size of Adam for the policy: a schedule.", 1e-3
                ),
                "critic_learning_rate": schedule_section("The same for the critics.", 1e-3),
                "max_grad_norm": Key(
                    0.0,
                    "Gradients with a larger norm are scaled to this norm; 0: never.",
                    within=FROM_0,
                ),
                "temperature": section(
                    "Weight of the entropy against the reward.",
                    {
                        "start": Key(1.0, "Initial weight.", within=ABOVE_0),
                        "learning_rate": Key(
                            1e-3,
                            "Step size of Adam for its logarithm; 0: the weight is fixed.",
                            within=FROM_0,
                        ),
                        "target_entropy": Key(
                            None,
                            "Target of the policy's entropy; None: minus the size of actions.",
                            unit="nats",
                        ),
                    },
                ),
                "tau": Key(
                    0.01,
                    "Share by which the target critics move towards the trained ones at each "
                    "update.",
                    within=SHARE_ABOVE_0,
                ),
                "cql_alpha": Key(
                    0.0,
                    "Weight of the loss that lowers values of actions which the data do not "
                    "contain, for recorded data (CQL); 0: off.",
                    within=FROM_0,
                ),
                "cql_actions": Key(
                    10,
                    "Actions of each row for that loss: so many of each kind, uniform, by the "
                    "policy, and by the policy at the next observation.",
                    within=FROM_1,
                    idle=Idle("cql_alpha", (0.0,)),
                ),
                "random_steps": Key(
                    1000,
                    "Agents take random actions until this point of the run.",
                    unit="environment steps",
                    within=FROM_0,
                ),
            },
            "model": MODEL_CONFIG,
            "replay": REPLAY_CONFIG,
        }
    )


class SACAgent(Agent):
    """Draws actions from its policy; in evaluation takes its mode."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        env = self.env_config
        self.scale = ActionScale(env.action_spec)
        model = self.learner_config.model
        self.policy = SquashedPolicy(env.obs_spec, self.scale.size, model).freeze()
        self.random_steps: int = self.learner_config.algo.random_steps

    def act(self, obs: Any) -> npt.NDArray[np.float32]:
        """Returns the actions `[N, *dim]` of observations `[N, ...]`."""
        policy = self.policy(obs)
        if self.agent_mode == AgentMode.eval_deterministic:
            unit = policy.mode()
        else:
            unit = policy.sample(self.generator)
            if self.agent_mode == AgentMode.training and (
                self.progress.env_steps < self.random_steps
            ):
                unit.uniform_(-1.0, 1.0, generator=self.generator)
        actions: npt.NDArray[np.float32] = self.scale.to_env(unit).numpy()
        return actions

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that acts."""
        return {"policy": self.policy}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class Temperature(nn.Module):
    """Weight of the entropy; its logarithm is the parameter, because it is unbounded."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)))

    @property
    def value(self) -> float:
        """The weight."""
        return math.exp(float(self.log.detach()))


class SACLearner(ContinuousLearner[SquashedPolicy]):
    """Moves critics towards soft targets, and the policy up the gradient of the lower critic."""

    policy_class = SquashedPolicy

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.temperature = Temperature(algo.temperature.start).to(self.device)
        wanted = algo.temperature.target_entropy
        self.target_entropy = float(-self.scale.size if wanted is None else wanted)
        self.add_optimizer(
            "temperature",
            self.temperature,
            algo.temperature.learning_rate,
            metrics=("", ""),
        )
        self.target = TargetNetwork(self.critics, mode="soft", tau=algo.tau)

    def execution_plan(self) -> Flow:
        """Updates critics, policy and temperature from each batch of transitions."""
        return (
            replay(self)
            .for_each(train_one_step(self, self.critic_loss))
            .for_each(update_priorities(self))
            .for_each(train_one_step(self, self.policy_loss))
            .for_each(learn_moments(self.policy, self.critics))
            .for_each(update_target(self.target))
        )

    def critic_loss(self, batch: Batch) -> Loss:
        """Returns the loss of both critics, with `cql_alpha` that of CQL in addition."""
        loss, alpha = super().critic_loss(batch), self.learner_config.algo.cql_alpha
        if not alpha:
            return loss
        gaps = self.value_gaps(batch)
        penalty = alpha * (gaps * batch.weights).mean(1).sum()
        metrics = {**loss.metrics, "conservative_loss": gaps.detach().mean()}
        metrics["loss"] = metrics["loss"] + penalty.detach()
        return Loss({"critic": dict(loss.total)["critic"] + penalty}, metrics, loss.priorities)

    def value_gaps(self, batch: Batch) -> torch.Tensor:
        """Returns how far values of sampled actions lie above those of the batch, `[2, B]`.

        A third of them is uniform, a third drawn by the policy at the observation, a third by the
        policy at the next one; all are valued at the observation.
        """
        count = self.learner_config.algo.cql_actions
        taken = self.scale.to_unit(batch.actions)
        with torch.no_grad():
            uniform = taken.new_empty(count, *taken.shape)
            uniform.uniform_(-1.0, 1.0, generator=self.generator)
            density = uniform.new_full((count, len(taken)), -self.scale.size * math.log(2.0))
            drawn = [(uniform, density)]
            for obs in (batch.obs, batch.obs_next):
                gaussian = self.policy(obs).gaussian
                mean, log_std = (x.repeat(count, 1, 1) for x in (gaussian.mean, gaussian.log_std))
                drawn.append(SquashedGaussian(mean, log_std).draw(self.generator))
            actions, densities = (torch.cat(each) for each in zip(*drawn, strict=True))
        q = self.critics(batch.obs, torch.cat((actions, taken.unsqueeze(0))))
        sampled = q[:, :-1].movedim(1, -1)
        return sampled_conservative_loss(sampled, densities.movedim(0, -1), q[:, -1])

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> torch.Tensor:
        """Returns the targets `[B]` of both critics."""
        actions, log_prob = self.policy(batch.obs_next).draw(self.generator)
        q_t = self.target.module(batch.obs_next, actions).amin(0)
        v_t = soft_value(q_t, log_prob, self.temperature.value)
        return td_target(batch.rewards, batch.discounts, v_t)

    def policy_loss(self, batch: Batch) -> Loss:
        """Returns the losses of the policy and, unless it is fixed, of the temperature."""
        alpha = self.temperature.value
        actions, log_prob = self.policy(batch.obs).draw(self.generator)
        with self.looking_through_critics():
            q = self.critics(batch.obs, actions).amin(0)
        loss = (soft_policy_loss(q, log_prob, alpha) * batch.weights).mean()
        totals, log_prob = {"policy": loss}, log_prob.detach()
        if self.optimizers["temperature"].learning_rate:
            losses = temperature_loss(self.temperature.log, log_prob, self.target_entropy)
            totals["temperature"] = losses.mean()
        metrics = {
            "policy_loss": loss.detach(),
            "entropy": -log_prob.mean(),
            "temperature": alpha,
        }
        return Loss(totals, metrics)

    def saveables(self) -> dict[str, Any]:
        return super().saveables() | {
            "target": self.target,
            "temperature": self.temperature,
        }

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class SAC(Algorithm):
    """Soft actor-critic, for continuous actions within bounds."""

    agent = SACAgent
    learner = SACLearner
    session_config = SESSION_CONFIG
    actions = ("continuous",)
    bounded = True
