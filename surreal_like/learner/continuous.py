"""Shared code of learners of continuous actions: a policy, its critics, and the updates of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from session.seeding import component_seed
from surreal_like.data.batch import Batch
from surreal_like.exploration.schedule import make_schedule
from surreal_like.learner.base import Learner
from surreal_like.learner.optimizer import Optimizer
from surreal_like.loss.value import squared_loss
from surreal_like.network.continuous import ActionScale, Critics
from surreal_like.network.obs_module import ObsModule

P = TypeVar("P", bound=ObsModule)

# Their `session_config`. At one update per step, agents soon wait for the learner: rows that wait
# in chunks come from old policies, as do the actions of an agent that fetches only once per
# episode.
SESSION_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        "agent": {"fetch_parameter_mode": "step:4", "fetch_interval_seconds": 0.02},
        "sender": {"flush_iteration": 4, "max_unacked_chunks": 2},
    }
)


class ContinuousLearner(Learner, Generic[P]):
    """Moves critics towards targets, and a policy up the gradient of the critics.

    An algorithm sets its :attr:`policy_class`, computes the targets and the policy's loss in
    `learn`, and calls :meth:`begin_update` first and :meth:`end_update` last.

    Attributes:
        policy_class: called with the observation spec, the size of actions and the config `model`.
        num_critics: number of critics.
        scale: converts between the environment's actions and those from -1 to 1.
        policy: computes actions, or distributions over them, `[B, size]`.
        critics: compute values of observations and actions, `[num_critics, B]`.
        generator: source of the learner's randomness.
    """

    policy_class: Callable[[Mapping[str, Any], int, Mapping[str, Any]], P]
    num_critics = 2

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo, model, env = self.learner_config.algo, self.learner_config.model, self.env_config
        self.scale = ActionScale(env.action_spec, self.device)
        size, count = self.scale.size, self.num_critics
        self.policy = self.policy_class(env.obs_spec, size, model).to(self.device)
        self.critics = Critics(env.obs_spec, size, model, count=count).to(self.device)
        where = "learner_config.algo"
        self.learning_rate = make_schedule(algo.learning_rate, f"{where}.learning_rate")
        self.critic_learning_rate = make_schedule(
            algo.critic_learning_rate, f"{where}.critic_learning_rate"
        )
        limit: float = algo.max_grad_norm
        self.policy_optimizer = Optimizer(
            self.policy, learning_rate=self.learning_rate.at(self), max_grad_norm=limit
        )
        self.critic_optimizer = Optimizer(
            self.critics, learning_rate=self.critic_learning_rate.at(self), max_grad_norm=limit
        )
        seed = component_seed(self.session_config.seed, "learner", 1)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def begin_update(self) -> None:
        """Sets the current step sizes."""
        self.policy_optimizer.learning_rate = self.learning_rate.at(self)
        self.critic_optimizer.learning_rate = self.critic_learning_rate.at(self)

    def follow(self, batch: Batch, targets: torch.Tensor) -> dict[str, Any]:
        """Moves all critics towards the targets `[B]`; returns their metrics."""
        q_tm1 = self.critics(batch.obs, self.scale.to_unit(batch.actions))
        losses = squared_loss(q_tm1, targets.expand_as(q_tm1)) * batch.weights
        loss = losses.mean(1).sum()
        norm = self.critic_optimizer.step(loss)
        td_error = (targets - q_tm1.detach()).abs().mean(0)
        self.update_priorities(td_error)
        return {
            "loss": loss.detach(),
            "mean_q": q_tm1.detach().mean(),
            "td_error": td_error.mean(),
            "grad_norm": norm,
        }

    @contextmanager
    def looking_through_critics(self) -> Iterator[None]:
        """Lets the policy's gradients pass through the critics without gradients of the critics."""
        self.critics.requires_grad_(False)
        try:
            yield
        finally:
            self.critics.requires_grad_(True)

    def end_update(self, batch: Batch) -> dict[str, Any]:
        """Updates the moments of observations; returns the metrics of both optimizers."""
        for network in (self.policy, self.critics):
            network.learn_moments(batch.obs)
        optimizers = (self.critic_optimizer, self.policy_optimizer)
        return {
            "learning_rate": self.policy_optimizer.learning_rate,
            "skipped": float(any(each.skipped for each in optimizers)),
            "nan_updates": sum(each.nan_updates for each in optimizers),
        }

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that agents act with."""
        return {"policy": self.policy}

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        return {
            "critics": self.critics,
            "policy_optimizer": self.policy_optimizer,
            "critic_optimizer": self.critic_optimizer,
        }
