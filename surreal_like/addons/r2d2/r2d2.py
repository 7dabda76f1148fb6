"""R2D2: double, dueling, n-step Q-learning of a recurrent network from stored sequences.

Kapturowski et al. 2019, Recurrent Experience Replay in Distributed Reinforcement Learning. Rows
carry the state that the agent had before them; the burn-in of a sequence makes it newer. Values are
compressed: Pohlen et al. 2018, Observe and Look Further.
"""

from __future__ import annotations

from typing import Any

import torch

from session import nest
from session.config import Config
from session.config.key import FROM_0, Key
from session.errors import ConfigError
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import DQN, EPSILON_CONFIG, DQNAgent
from surreal_like.algorithm.q_learner import Q_LEARNER_CONFIG, QLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss
from surreal_like.dataflow.batches import inputs_before, state_before
from surreal_like.loss.policy import masked_mean
from surreal_like.loss.returns import n_step_returns
from surreal_like.loss.value import double_q_value, greedy_value, taken_value, td_error
from surreal_like.network.q_network import RECURRENT_Q_CONFIG, QNetwork


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                "n_step": Key(
                    5,
                    "Number of rewards summed before the bootstrap value, fewer at the end of a "
                    "sequence.",
                    unit="steps",
                ),
                "dueling": Key(
                    True, "Split Q into the value of the state and the advantages of the actions."
                ),
                "rescale": Key(
                    1e-3,
                    "Learn sign(x) (sqrt(|x| + 1) - 1) + rescale x instead of values x; 0: values.",
                    within=FROM_0,
                ),
            }
            | Q_LEARNER_CONFIG
            | EPSILON_CONFIG,
            "replay": {
                "batch_size": Key(32, "Size of one batch of the learner.", unit="sequences"),
                "min_size": Key(
                    100, "Sequences that can be sampled before sampling begins.", unit="sequences"
                ),
                "samples_per_insert": Key(
                    4.0, "Average number of times that each sequence is sampled."
                ),
            },
            "model": RECURRENT_Q_CONFIG,
        }
    )


def make_network(learner_config: Config, env_config: Config) -> QNetwork:
    """Builds the network; agent and learner use the same one. Raises ConfigError without memory."""
    if not learner_config.model.memory:
        raise ConfigError(
            "learner_config.model.memory is empty, but values of sequences need a memory: set "
            "it to lstm or gru, or algorithm to dqn"
        )
    return QNetwork(
        env_config.obs_spec,
        env_config.action_spec.dim[0],
        model=learner_config.model,
        dueling=learner_config.algo.dueling,
    )


class R2D2Agent(DQNAgent):
    """Acts as that of DQN, with a state; the state before each row is the column `memory`."""

    make_model = staticmethod(make_network)

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class R2D2Learner(QLearner):
    """Moves Q of the learned rows of sequences towards n-step targets in the same sequence.

    Attributes:
        burn_in: rows of a sequence before the learned ones.
    """

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.n_step: int = algo.n_step
        self.rescale: float = algo.rescale
        self.burn_in: int = self.learner_config.replay.sequence.burn_in
        self.eta: float = self.learner_config.replay.priority.eta

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of a batch of sequences, with their priorities."""
        start = self.burn_in
        q, state = self.values(self.q_network, batch)
        with torch.no_grad():
            target_q, _ = self.values(self.target.module, batch)
            v = double_q_value(target_q, q) if self.double else greedy_value(target_q)
        mask = batch.mask[start:]
        targets = rescaled_targets(
            batch.rewards[start:],
            batch.discounts[start:],
            v,
            n=self.n_step,
            mask=mask,
            epsilon=self.rescale,
        )
        q_taken = taken_value(q[:-1], batch.actions[start:])
        delta = td_error(q_taken, targets)
        metrics = {
            "td_error": masked_mean(delta.detach().abs(), mask),
            "mean_q": masked_mean(q_taken.detach(), mask),
            "state_drift": self.state_drift(batch, state),
        }
        return Loss(
            sequence_loss(delta, mask, batch.weights),
            metrics,
            sequence_priority(delta, mask, self.eta),
        )

    def values(self, network: QNetwork, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns Q `[L + 1, B, A]` behind the burn-in, and the state there, `[B, state_size]`."""
        start, state = self.burn_in, state_before(batch)
        assert state is not None  # agents send it with each row
        with torch.no_grad():
            head = nest.map(lambda x: x[:start], batch.obs)
            before = {name: x[:start] for name, x in inputs_before(batch).items()}
            state = network.burn_in(head, state, batch.first[:start], **before)
        tail = nest.map(lambda x: x[start:], batch.obs)
        before = {name: x[start:] for name, x in inputs_before(batch).items()}
        q_values, _ = network.unroll(tail, state, batch.first[start:], **before)
        return q_values, state

    def state_drift(self, batch: Batch, state: torch.Tensor) -> torch.Tensor:
        """Returns how far stored states are from those of the burn-in, relative to the latter.

        A mean over sequences that do not start with their episode.
        """
        stored = batch.extras["memory"][self.burn_in]
        drift = (stored - state).norm(dim=1) / state.norm(dim=1).clamp(min=1e-6)
        return masked_mean(drift, (~batch.first[self.burn_in]).float())

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return default_config()


class R2D2(Algorithm):
    """Recurrent Q-learning from stored sequences, for discrete actions."""

    agent = R2D2Agent
    learner = R2D2Learner
    actions = ("discrete",)
    replay = "SequenceReplay"
    session_config = DQN.session_config


# Losses, targets and priorities of sequences: L is their learned steps, B the batch.
def rescale(x: torch.Tensor, epsilon: float = 1e-3) -> torch.Tensor:
    """Compresses values of any shape: `sign(x) (sqrt(|x| + 1) - 1) + epsilon x`.

    Pohlen et al. 2018, Observe and Look Further, proposition A.2.
    """
    size = x.abs()
    # The root less 1 without the rounding of small values.
    return x.sign() * (size / ((size + 1.0).sqrt() + 1.0)) + epsilon * x


def unscale(x: torch.Tensor, epsilon: float = 1e-3) -> torch.Tensor:
    """Inverts :func:`rescale` exactly.

    With `d = sqrt(|y| + 1) - 1` for the wanted y, `|x| = epsilon d**2 + (1 + 2 epsilon) d`.
    """
    size, half = x.abs(), 1.0 + 2.0 * epsilon
    # This form of the root has no difference of large numbers.
    d = 2.0 * size / (half + (half * half + 4.0 * epsilon * size).sqrt())
    return x.sign() * d * (d + 2.0)


def sequence_means(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean `[B]` of `x` `[L, B]` over the rows of mask 1; 0 for a sequence of none."""
    return (x * mask).sum(0) / mask.sum(0).clamp(min=1.0)


def sequence_loss(
    td_error: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Returns half the squared errors `[L, B]`, as mean of each sequence and then of the batch.

    `weights` `[B]` are those of the sampling; the result is a scalar. Kapturowski et al. 2019.
    """
    return (weights * sequence_means(0.5 * td_error.square(), mask)).mean()


def sequence_priority(td_error: torch.Tensor, mask: torch.Tensor, eta: float = 0.9) -> torch.Tensor:
    """Returns the priority `[B]`: `eta` of the largest absolute error and the rest of the mean.

    Only rows of mask 1 count. Kapturowski et al. 2019, section 2.3; without gradient.
    """
    size = td_error.detach().abs() * mask
    return eta * size.amax(0) + (1.0 - eta) * sequence_means(size, mask)


@torch.no_grad()
def rescaled_targets(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    values: torch.Tensor,
    *,
    n: int,
    mask: torch.Tensor | None = None,
    epsilon: float = 1e-3,
) -> torch.Tensor:
    """Returns n-step targets `[L, B]` of rescaled values: Kapturowski et al. 2019, equation 1.

    Args:
        rewards, discounts, mask: `[L, B]`, as of `n_step_returns`.
        values: rescaled values of all rows, `[L + 1, B]`.
        n: steps, fewer at the end of an episode or of the sequence.
        epsilon: epsilon of `rescale`; 0: values are not rescaled.
    """
    plain = unscale(values, epsilon) if epsilon else values
    targets = n_step_returns(rewards, discounts, plain[:-1], plain[-1], n=n, mask=mask)
    return rescale(targets, epsilon) if epsilon else targets
