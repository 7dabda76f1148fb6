"""Shared code of learners of the values of discrete actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from session.config import Config
from surreal_like.dataflow import (
    Flow,
    learn_moments,
    replay,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.exploration.schedule import SCHEDULE_CONFIG
from surreal_like.learner.base import Learner
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.module import Module
from surreal_like.network.q_network import QNetwork

# The keys of `learner_config.algo.target`.
TARGET_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # hard: a copy every `period` updates; soft: moves by the share `tau` at each
        # update.
        "mode": "hard",
        # Of a hard target [updates].
        "period": 100,
        # Of a soft target.
        "tau": 0.005,
    }
)

# The keys of `learner_config.algo` for a QLearner.
Q_LEARNER_CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        # Choose the next action with the online network, value it with the target network.
        "double": True,
        # Step size of Adam: a schedule.
        "learning_rate": {**SCHEDULE_CONFIG, "kind": "constant", "start": 1e-3, "end": 0.0},
        # Added to the root of Adam's second moment.
        "adam_epsilon": 1e-8,
        # Gradients with a larger norm are scaled to this norm; 0: never.
        "max_grad_norm": 10.0,
        # Updates of the target network from the online network.
        "target": dict(TARGET_CONFIG),
    }
)

QNetworkT = TypeVar("QNetworkT", bound=QNetwork)


class QLearner(Learner, Generic[QNetworkT]):
    """Learns Q values that bootstrap from a target network; a subclass adds the loss.

    Attributes:
        make_model: function of learner_config and env_config that builds the network.
        double: whether the online network chooses the next action.
        q_network: computes the values.
        target: the network that values the next state.
    """

    make_model: Callable[[Config, Config], QNetworkT]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.double: bool = algo.double
        self.q_network = self.make_model(self.learner_config, self.env_config).to(self.device)
        if self.q_network.noise is not None:
            self.q_network.noise.generator = self.generator
        self.add_optimizer(
            "optimizer",
            self.q_network,
            algo.learning_rate,
            max_grad_norm=algo.max_grad_norm,
            epsilon=algo.adam_epsilon,
        )
        self.target = TargetNetwork(self.q_network, **algo.target)

    def execution_plan(self) -> Flow:
        """Makes one update from each batch."""
        return (
            replay(self)
            .for_each(train_one_step(self))
            .for_each(learn_moments(self.q_network))
            .for_each(update_target(self.target))
            .for_each(update_priorities(self))
        )

    def module_dict(self) -> dict[str, Module]:
        """Returns the network that agents act with."""
        return {"q_network": self.q_network}

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        return {**super().saveables(), "target": self.target}
