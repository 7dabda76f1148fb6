"""DDPG: a deterministic policy that follows the gradient of its critic; with the options of TD3.

Lillicrap et al. 2016, Continuous Control with Deep Reinforcement Learning; Fujimoto et al. 2018
(TD3: two critics, smoothed targets, a policy that is updated less often); Fujimoto and Gu 2021, A
Minimalist Approach to Offline Reinforcement Learning (TD3+BC).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from session.config import Config
from session.config.key import FROM_0, FROM_1, SHARE_ABOVE_0, Idle, Key, section
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
    every,
    learn_moments,
    replay,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.dataflow.batches import sums_of_all
from surreal_like.exploration.noise import NOISE_CONFIG, Noise
from surreal_like.exploration.schedule import schedule_section
from surreal_like.learner.target import TargetNetwork
from surreal_like.loss.policy import deterministic_policy_loss, value_scale
from surreal_like.loss.value import td_target
from surreal_like.network.continuous import ActionScale, DeterministicPolicy

# The keys of `learner_config.algo`; TD3 has the same ones.
ALGO_CONFIG = Config(
    {
        "learning_rate": schedule_section("Step size of Adam for the policy: a schedule.", 1e-3),
        "critic_learning_rate": schedule_section("The same for the critics.", 1e-3),
        "max_grad_norm": Key(
            0.0, "Gradients with a larger norm are scaled to this norm; 0: never.", within=FROM_0
        ),
        "twin": Key(False, "Use two critics; the lower value is the target."),
        "policy_delay": Key(
            1,
            "Updates of the critics for each update of the policy.",
            unit="updates",
            within=FROM_1,
        ),
        "target_noise": Key(
            0.0,
            "Standard deviation of noise on actions in targets.",
            unit="half widths of the action's bounds",
            within=FROM_0,
        ),
        "target_noise_clip": Key(
            0.5,
            "Limit of that noise on both sides.",
            unit="half widths of the action's bounds",
            within=FROM_0,
            idle=Idle("target_noise", (0.0,)),
        ),
        "tau": Key(
            0.01,
            "Share by which the target networks move towards the trained ones at each update.",
            within=SHARE_ABOVE_0,
        ),
        "bc_weight": Key(
            0.0,
            "Weight of the value against the distance from the recorded actions, for recorded data "
            "(TD3+BC, with 2.5 and model.normalize_obs in the paper); 0: only the value counts.",
            within=FROM_0,
        ),
        "noise": section("Noise that agents add to actions while training.", NOISE_CONFIG),
        "random_steps": Key(
            1000,
            "Agents take random actions until this point of the run.",
            unit="environment steps",
            within=FROM_0,
        ),
    }
)


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": ALGO_CONFIG,
            "model": MODEL_CONFIG,
            "replay": REPLAY_CONFIG,
        }
    )


class DDPGAgent(Agent):
    """Takes the action of its policy; adds noise in training."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        env, algo = self.env_config, self.learner_config.algo
        self.scale = ActionScale(env.action_spec)
        model = self.learner_config.model
        self.policy = DeterministicPolicy(env.obs_spec, self.scale.size, model).freeze()
        self.noise = Noise(algo.noise, agent_id=self.agent_id, num_agents=self.num_agents)
        self.random_steps: int = algo.random_steps

    def act(self, obs: Any) -> npt.NDArray[np.float32]:
        """Returns the actions `[N, *dim]` of observations `[N, ...]`."""
        unit = self.policy(obs)
        if self.agent_mode != AgentMode.eval_deterministic:
            unit = self.explored(unit)
        actions: npt.NDArray[np.float32] = self.scale.to_env(unit).numpy()
        return actions

    def explored(self, unit: torch.Tensor) -> torch.Tensor:
        """Returns actions `[N, size]` with noise, in their bounds; random in the first steps."""
        training = self.agent_mode == AgentMode.training
        if training and self.progress.env_steps < self.random_steps:
            return torch.empty_like(unit).uniform_(-1.0, 1.0, generator=self.generator)
        # `first` may have another length if a user calls `act` directly.
        first = self.first if len(self.first) == len(unit) else np.ones(len(unit), np.bool_)
        streams = self.streams if len(self.streams) == len(unit) else None
        noise = torch.from_numpy(self.noise.draw(first, self.scale.size, self.rng, streams))
        return (unit + noise).clamp(-1.0, 1.0)

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that acts."""
        return {"policy": self.policy}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class DDPGLearner(ContinuousLearner[DeterministicPolicy]):
    """Moves critics towards their targets, and the policy up the gradient of the first critic."""

    policy_class = DeterministicPolicy

    def __init__(self, **kwargs: Any) -> None:
        self.algo = kwargs["learner_config"].algo
        self.num_critics = 2 if self.algo.twin else 1
        super().__init__(**kwargs)
        self.target_policy = TargetNetwork(self.policy, mode="soft", tau=self.algo.tau)
        self.target_critics = TargetNetwork(self.critics, mode="soft", tau=self.algo.tau)

    def execution_plan(self) -> Flow:
        """Updates the critics from each batch of transitions; the policy less often."""
        policy = every(
            self.algo.policy_delay,
            train_one_step(self, self.policy_loss),
            update_target(self.target_policy, self.target_critics),
        )
        return (
            replay(self)
            .for_each(train_one_step(self, self.critic_loss))
            .for_each(update_priorities(self))
            .for_each(policy)
            .for_each(learn_moments(self.policy, self.critics))
        )

    @torch.no_grad()
    def bootstrap(self, batch: Batch) -> torch.Tensor:
        algo = self.algo
        actions = self.target_policy.module(batch.obs_next)
        if algo.target_noise:
            noise = torch.empty_like(actions).normal_(generator=self.generator)
            limit = algo.target_noise_clip
            noise = (algo.target_noise * noise).clamp(-limit, limit)
            actions = (actions + noise).clamp(-1.0, 1.0)
        q_t = self.target_critics.module(batch.obs_next, actions).amin(0)
        return td_target(batch.rewards, batch.discounts, q_t)

    def policy_loss(self, batch: Batch) -> Loss:
        """Returns the loss of the policy: minus the value of its actions by the first critic.

        With `bc_weight` the squared distance from the actions of the batch is added.
        """
        actions = self.policy(batch.obs)
        with self.looking_through_critics():
            q = self.critics(batch.obs, actions)[0]
        losses, metrics = deterministic_policy_loss(q), {}
        if self.algo.bc_weight:
            distances = (actions - self.scale.to_unit(batch.actions)).square().mean(-1)
            losses = value_scale(q, self.algo.bc_weight, sums_of_all) * losses + distances
            metrics["bc_loss"] = distances.detach().mean()
        loss = (losses * batch.weights).mean()
        return Loss({"policy": loss}, {"policy_loss": loss.detach(), **metrics})

    def saveables(self) -> dict[str, Any]:
        targets = {"target_policy": self.target_policy, "target_critics": self.target_critics}
        return super().saveables() | targets

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class DDPG(Algorithm):
    """Deep deterministic policy gradient, for continuous actions within bounds."""

    agent = DDPGAgent
    learner = DDPGLearner
    session_config = SESSION_CONFIG
    actions = ("continuous",)
    bounded = True
