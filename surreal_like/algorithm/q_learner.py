"""Shared code of learners of the values of discrete actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE_ABOVE_0, Idle, Key, section
from surreal_like.dataflow import (
    Flow,
    learn_moments,
    replay,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.exploration.schedule import schedule_section
from surreal_like.learner.learner import Learner
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.module import Module
from surreal_like.network.q_network import QNetwork

# The keys of `learner_config.algo.target`.
TARGET_CONFIG = Config(
    {
        "mode": Key(
            "hard",
            "hard: a copy after each `period` updates; soft: moves by the share `tau` at each.",
            one_of=("hard", "soft"),
        ),
        "period": Key(
            100,
            "Of a hard target.",
            unit="updates",
            within=FROM_1,
            idle=Idle("mode", ("soft",)),
        ),
        "tau": Key(0.005, "Of a soft target.", within=SHARE_ABOVE_0, idle=Idle("mode", ("hard",))),
    }
)

# The keys of `learner_config.algo` for a QLearner.
Q_LEARNER_CONFIG = Config(
    {
        "double": Key(
            True,
            "Choose the next action with the online network, value it with the target network.",
        ),
        "learning_rate": schedule_section("Step size of Adam: a schedule.", 1e-3),
        "adam_epsilon": Key(1e-8, "Added to the root of Adam's second moment.", within=ABOVE_0),
        "max_grad_norm": Key(
            10.0, "Gradients with a larger norm are scaled to this norm; 0: never.", within=FROM_0
        ),
        "target": section("Updates of the target network from the online network.", TARGET_CONFIG),
    }
)


class QLearner(Learner):
    """Learns Q values that bootstrap from a target network; a subclass adds the loss.

    Attributes:
        make_model: function of learner_config and env_config that builds the network.
        double: whether the online network chooses the next action.
        q_network: computes the values.
        target: the network that values the next state.
    """

    make_model: Callable[[Config, Config], QNetwork]

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
