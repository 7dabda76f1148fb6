"""Random network distillation: a bonus for observations that a predictor does not know yet.

Burda et al. 2019, Exploration by Random Network Distillation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from session import nest
from session.errors import ConfigError
from surreal_like.data.batch import Batch
from surreal_like.dataflow.flow import Operator
from surreal_like.dataflow.items import axis_of
from surreal_like.exploration.schedule import make_schedule
from surreal_like.learner.optimizer import Optimizer
from surreal_like.network.encoder import make_encoder
from surreal_like.network.torso import MLP
from surreal_like.replay.replay import load_replay_class
from surreal_like.transform.normalizer import Moments, Normalizer

if TYPE_CHECKING:
    from surreal_like.learner.learner import Learner

_CLIP = 5.0
_NAME = "rnd"


class Novelty(nn.Module):
    """Predicts the features that a fixed random network makes of observations.

    Args:
        obs_spec: observations spec from the environment config.
        features: number of features.
        hidden_sizes: widths of the layers of both networks.
    """

    def __init__(
        self, obs_spec: Mapping[str, Any], *, features: int, hidden_sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.normalizer = Normalizer(obs_spec)
        self.target = _network(obs_spec, features, hidden_sizes).requires_grad_(False)
        self.predictor = _network(obs_spec, features, hidden_sizes)
        self.moments = Moments(())

    def errors(self, obs: Any) -> torch.Tensor:
        """Returns the mean squared error of the features of each observation, `[M]`."""
        seen = nest.map(_clip, self.normalizer(obs))
        errors: torch.Tensor = (self.predictor(seen) - self.target(seen)).square().mean(-1)
        return errors

    def learn_moments(self, obs: Any, errors: torch.Tensor) -> None:
        """Adds observations and their errors to the running moments."""
        self.normalizer.update(obs)
        self.moments.update(errors)


class RandomNetworkDistillation:
    """Networks of a bonus, with the optimizer of the predictor; see :func:`add_rnd_bonus`.

    Args:
        novelty: novelty on the device.
        learning_rate: step size of the predictor.
    """

    def __init__(self, novelty: Novelty, learning_rate: float) -> None:
        self.novelty = novelty
        self.optimizer = Optimizer(novelty.predictor, learning_rate=learning_rate)

    def bonus(self, obs: Any) -> torch.Tensor:
        """Returns the bonus of observations, `[M]`, without gradient; then learns from them.

        An error counts in units of the deviation of all errors before this call; 1 at first.
        """
        errors = self.novelty.errors(obs)
        bonus = errors.detach() * self.novelty.moments.scale
        self.optimizer.step(errors.mean(), len(errors))
        self.novelty.learn_moments(obs, errors.detach())
        return bonus

    def state_dict(self) -> dict[str, Any]:
        """Returns both networks, the moments, and the state of the optimizer."""
        return {"novelty": self.novelty.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.novelty.load_state_dict(state["novelty"])
        self.optimizer.load_state_dict(state["optimizer"])


def add_rnd_bonus(
    learner: Learner,
    weight: float | Mapping[str, Any] = 0.01,
    features: int = 32,
    hidden_sizes: Sequence[int] = (64,),
    learning_rate: float = 1e-3,
) -> Operator:
    """Returns an operator that adds a bonus to the rewards of rows, unrolls and sequences.

    Its networks are in checkpoints; they are not published. Works behind a source of a plan.

    Args:
        learner: learner of the plan.
        weight: factor of the bonus, in units of the reward: a number or a schedule.
        features: number of features to predict.
        hidden_sizes: widths of the layers.
        learning_rate: step size of the predictor.

    Raises:
        ConfigError: a value is invalid, or rewards of several steps are summed in each row.
    """
    config = learner.learner_config
    if load_replay_class(config).gives() == "rows" and config.algo.n_step > 1:
        raise ConfigError(
            f"{_NAME} gives each step its bonus, but learner_config.algo.n_step is "
            f"{config.algo.n_step}: set it to 1"
        )
    if not isinstance(features, int) or features < 1:
        raise ConfigError(f"{_NAME} has {features!r} features, expected 1 or more")
    schedule = make_schedule(weight, f"weight of {_NAME}")
    spec = learner.env_config.obs_spec
    novelty = Novelty(spec, features=features, hidden_sizes=hidden_sizes).to(learner.device)
    distillation = learner.keep(_NAME, RandomNetworkDistillation(novelty, learning_rate))

    def add(batch: Batch) -> Batch:
        rewards, obs, here = batch.rewards, batch, slice(None)
        if axis_of(batch):
            # Row t + 1 is what step t led to; rows without an action lead nowhere.
            here = batch.mask != 0
            obs = nest.map(lambda x: x[1:][here], batch.obs)
        else:
            obs = batch.obs_next
        bonus = distillation.bonus(obs) * schedule.at(learner)
        batch["rewards"] = rewards.clone()
        batch["rewards"][here] += bonus
        learner.add_metrics(
            {
                f"part/{_NAME}/bonus": bonus.mean(),
                f"part/{_NAME}/weight": schedule.at(learner),
                "skipped": float(distillation.optimizer.skipped),
            }
        )
        return batch

    return Operator(f"add_{_NAME}_bonus", add, learner=learner)


def _network(obs_spec: Mapping[str, Any], features: int, hidden_sizes: Sequence[int]) -> nn.Module:
    encoder = make_encoder(obs_spec)
    hidden = MLP(encoder.out_features, hidden_sizes)
    return nn.Sequential(encoder, hidden, nn.Linear(hidden.out_features, features))


def _clip(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-_CLIP, _CLIP) if x.is_floating_point() else x
