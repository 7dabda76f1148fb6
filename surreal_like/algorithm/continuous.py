"""Shared code of learners of continuous actions: a policy, its critics, and their loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from session.config import Config
from session.config.key import Key
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss
from surreal_like.errors import unwritten
from surreal_like.learner.learner import Learner
from surreal_like.loss.value import squared_loss
from surreal_like.network.continuous import ActionScale, Critics
from surreal_like.network.module import ObsModule
from surreal_like.network.torso import TORSO_CONFIG

P = TypeVar("P", bound=ObsModule)

# Defaults of `learner_config.model`.
MODEL_CONFIG = TORSO_CONFIG | {"hidden_sizes": [128, 128]}
# Defaults of `learner_config.replay`.
REPLAY_CONFIG = Config(
    {
        "batch_size": 128,
        "samples_per_insert": Key(
            128.0, "Average times that a row is sampled; equal to batch_size: one update per step."
        ),
    }
)

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

    An algorithm sets its :attr:`policy_class`, and computes targets in :meth:`bootstrap`.

    Attributes:
        policy_class: called with the observation spec, the size of actions and the config `model`.
        num_critics: number of critics.
        scale: converts between the environment's actions and those from -1 to 1.
        policy: computes actions, or distributions over them, `[B, size]`.
        critics: compute values of observations and actions, `[num_critics, B]`.
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
        limit: float = algo.max_grad_norm
        self.add_optimizer(
            "policy",
            self.policy,
            algo.learning_rate,
            max_grad_norm=limit,
            metrics=("policy_grad_norm", "learning_rate"),
        )
        self.add_optimizer(
            "critic",
            self.critics,
            algo.critic_learning_rate,
            where="learner_config.algo.critic_learning_rate",
            max_grad_norm=limit,
            metrics=("grad_norm", ""),
        )

    def critic_loss(self, batch: Batch) -> Loss:
        """Returns the loss of all critics; the priorities are the absolute TD errors."""
        targets = self.bootstrap(batch)
        q_tm1 = self.critics(batch.obs, self.scale.to_unit(batch.actions))
        losses = squared_loss(q_tm1, targets.expand_as(q_tm1)) * batch.weights
        loss, q_tm1 = losses.mean(1).sum(), q_tm1.detach()
        td_error = (targets - q_tm1).abs().mean(0)
        metrics = {"loss": loss.detach(), "mean_q": q_tm1.mean(), "td_error": td_error.mean()}
        return Loss({"critic": loss}, metrics, td_error)

    def bootstrap(self, batch: Batch) -> torch.Tensor:
        """Returns the targets `[B]` of all critics."""
        raise unwritten(self, "bootstrap(batch)", "your_own_algorithm.md")

    @contextmanager
    def looking_through_critics(self) -> Iterator[None]:
        """Lets the policy's gradients pass through the critics without gradients of the critics."""
        trained = [each for each in self.critics.parameters() if each.requires_grad]
        for each in trained:
            each.requires_grad_(False)
        try:
            yield
        finally:
            for each in trained:
                each.requires_grad_(True)

    def module_dict(self) -> dict[str, nn.Module]:
        """Returns the network that agents act with."""
        return {"policy": self.policy}

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        return {**super().saveables(), "critics": self.critics}
