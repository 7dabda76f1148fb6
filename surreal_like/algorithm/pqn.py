"""PQN: Q-learning from unrolls, without a replay of old rows and without a target network.

Gallici et al. 2024, Simplifying Deep Temporal Difference Learning: Q(lambda) over the unrolls of
many environments, several passes over each batch, and layers that are normalized, which keep
bootstrapped values stable.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE, Key
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import EPSILON_CONFIG, DQNAgent
from surreal_like.algorithm.on_policy import PUBLISH_CONFIG, REPLAY_CONFIG, explained_variance
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Flow, Loss, learn_moments, rollouts, train_one_step
from surreal_like.dataflow.batches import inputs_before, rows_of, state_before
from surreal_like.exploration.schedule import schedule_section
from surreal_like.learner.learner import Learner
from surreal_like.loss.policy import mean_over
from surreal_like.loss.returns import lambda_returns
from surreal_like.loss.value import greedy_value, squared_loss, taken_value
from surreal_like.network.module import Module
from surreal_like.network.q_network import RECURRENT_Q_CONFIG, QNetwork


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    algo = Config(
        {
            "q_lambda": Key(
                0.65,
                "Bias against variance of the targets: 0 relies on the values, 1 on the rewards.",
                within=SHARE,
            ),
            "dueling": Key(
                False, "Split Q into the value of the state and the advantages of the actions."
            ),
            "num_sgd_iter": Key(2, "Passes over each batch.", within=FROM_1),
            "minibatches": Key(32, "Minibatches per pass; each makes one update.", within=FROM_1),
            "learning_rate": schedule_section("Step size of RAdam: a schedule.", 2.5e-4),
            "adam_epsilon": Key(
                1e-8, "Added to the root of RAdam's second moment.", within=ABOVE_0
            ),
            "max_grad_norm": Key(
                10.0,
                "Gradients with a larger norm are scaled to this norm; 0: never.",
                within=FROM_0,
            ),
        }
    )
    return Config(
        {
            "algo": algo | EPSILON_CONFIG,
            "model": RECURRENT_Q_CONFIG | {"memory": _MEMORY, "layer_norm": True},
            "replay": REPLAY_CONFIG | {"batch_size": 128},
            "parameter_publish": PUBLISH_CONFIG,
        }
    )


_MEMORY = Key("", "Recurrent core between torso and head: lstm or gru; empty: none.")


def make_network(learner_config: Config, env_config: Config) -> QNetwork:
    """Builds the network; agent and learner use the same one."""
    return QNetwork(
        env_config.obs_spec,
        env_config.action_spec.dim[0],
        model=learner_config.model,
        dueling=learner_config.algo.dueling,
    )


class PQNAgent(DQNAgent):
    """Takes the action of the largest value; with probability epsilon a random action."""

    make_model = staticmethod(make_network)

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class PQNLearner(Learner):
    """Moves Q of the taken actions towards Q(lambda) targets of the same unroll.

    Attributes:
        make_model: function of learner_config and env_config that builds the network.
        algo: `learner_config.algo`.
        q_network: computes the values, and those of the targets.
    """

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.algo = self.learner_config.algo
        self.q_network = self.make_model(self.learner_config, self.env_config).to(self.device)
        self.add_optimizer(
            "optimizer",
            self.q_network,
            algo.learning_rate,
            max_grad_norm=algo.max_grad_norm,
            epsilon=algo.adam_epsilon,
            rule="radam",
        )

    def execution_plan(self) -> Flow:
        """Makes several updates from each batch of unrolls, with targets computed once."""
        passes = self.algo.num_sgd_iter, self.algo.minibatches
        return (
            rollouts(self)
            .for_each(self.compute_targets)
            .for_each(train_one_step(self, None, *passes))
            .for_each(learn_moments(self.q_network))
        )

    @torch.no_grad()
    def compute_targets(self, batch: Batch) -> Batch:
        """Adds the column `value_targets` `[T, B]` to unrolls.

        ``G_t = r_t + d_t ((1 - lambda) max_a Q(s_(t+1), a) + lambda G_(t+1))``, where G of the last
        row of an episode, and of the unroll, is the largest value there.
        """
        values = greedy_value(self.values(batch))
        batch["value_targets"] = lambda_returns(
            batch.rewards,
            batch.discounts,
            values[:-1],
            values[-1],
            lambda_=self.algo.q_lambda,
            mask=batch.mask,
        )
        return batch

    def values(self, batch: Batch) -> torch.Tensor:
        """Returns Q `[..., A]` of rows `[M]`, or of whole unrolls `[T, B]`."""
        state = state_before(batch)
        if state is None and batch.rewards.dim() == 1:
            found: torch.Tensor = self.q_network(batch.obs)
            return found
        return self.q_network.unroll(batch.obs, state, batch.first, **inputs_before(batch))[0]

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of rows with targets: the mean of their squared errors."""
        rows = rows_of(batch)
        q_values = taken_value(self.values(rows), rows.actions)
        mean = mean_over(rows.mask)
        # Without the half of `squared_loss`, which the code of the authors has. RAdam hardly
        # notices a factor, but `max_grad_norm` scales gradients down from half the error on.
        loss = 2.0 * mean(squared_loss(q_values, rows.value_targets))
        q_values = q_values.detach()
        metrics = {
            "mean_q": mean(q_values),
            "td_error": mean((rows.value_targets - q_values).abs()),
            "explained_variance": explained_variance(q_values, rows.value_targets, rows.mask),
        }
        return Loss(loss, metrics)

    def module_dict(self) -> dict[str, Module]:
        """Returns the network that agents act with."""
        return {"q_network": self.q_network}

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class PQN(Algorithm):
    """Q-learning of the newest unrolls, for discrete actions."""

    agent = PQNAgent
    learner = PQNLearner
    actions = ("discrete",)
    replay = "FIFOReplay"
    session_config = MappingProxyType({"sender": {"flush_iteration": 32}})
