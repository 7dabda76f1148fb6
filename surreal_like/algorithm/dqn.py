"""DQN with its later extensions, all of which together are Rainbow (Hessel et al. 2018).

Mnih et al. 2015, Human-level control through deep reinforcement learning; van Hasselt et al. 2016
(double); Wang et al. 2016 (dueling); Schaul et al. 2016 (priorities: the absolute TD errors; with
``learner_config.replay.type`` PrioritizedReplay); Horgan et al. 2018 (n-step, epsilons); Bellemare
et al. 2017 (categorical); Dabney et al. 2018 (quantile); Fortunato et al. 2018 (noisy).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from session.config import Config
from session.config.key import FROM_0, SHARE, Idle, Key, section
from session.errors import ConfigError
from surreal_like.agent.agent import Agent, AgentMode, Progress, rewards_of
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.q_learner import Q_LEARNER_CONFIG, QLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss
from surreal_like.exploration.schedule import (
    SCHEDULE_CONFIG,
    agent_epsilon,
    epsilon_greedy,
    make_schedule,
)
from surreal_like.loss.distributional import (
    categorical_divergence,
    categorical_loss,
    categorical_projection,
    clipped_mass,
    quantile_loss,
    taken_distribution,
)
from surreal_like.loss.value import (
    conservative_loss,
    double_q_value,
    greedy_value,
    huber_loss,
    squared_loss,
    taken_value,
    td_target,
)
from surreal_like.network.masks import legal_values
from surreal_like.network.module import Module
from surreal_like.network.q_network import DISTRIBUTION_CONFIG, Q_NETWORK_CONFIG, QNetwork

# Losses, metrics and priorities of a batch; losses and priorities `[B]`.
Losses = tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]


# The keys of `learner_config.algo` for exploration.
EPSILON_CONFIG = Config(
    {
        "epsilon": section(
            "Share of random actions while training: a schedule.", SCHEDULE_CONFIG, within=SHARE
        ),
        "epsilon_alpha": Key(
            0.0,
            "Reduces exploration from agent to agent: epsilon ** (1 + alpha i / (N - 1)).",
            within=FROM_0,
        ),
        "epsilon_agents": Key(
            0,
            "That N; an agent i >= N explores as agent i modulo N; 0: number of agents at the "
            "launch.",
            within=FROM_0,
            idle=Idle("epsilon_alpha", (0.0,)),
        ),
        "eval_epsilon": Key(
            0.01, "Share of random actions in the mode eval_stochastic.", within=SHARE
        ),
    }
)


def default_config() -> Config:
    """Returns the defaults that agent and learner add to `learner_config`."""
    return Config(
        {
            "algo": {
                "n_step": 3,
                "distribution": section(
                    "Learn distributions of values instead of their means.", DISTRIBUTION_CONFIG
                ),
                "dueling": Key(
                    False, "Split Q into the value of the state and the advantages of the actions."
                ),
                "huber_kappa": Key(
                    1.0,
                    "The loss is linear beyond this TD error; 0: squared everywhere.",
                    within=FROM_0,
                ),
            }
            | {
                "cql_alpha": Key(
                    0.0,
                    "Weight of the loss that lowers values of actions that were not taken, for "
                    "recorded data (CQL); 0: off.",
                    within=FROM_0,
                ),
            }
            | Q_LEARNER_CONFIG
            | EPSILON_CONFIG,
            "replay": {
                "batch_size": 128,
                "samples_per_insert": Key(
                    32.0,
                    "Average number of times that each row is sampled; a quarter of the batch "
                    "size: one update every four steps, as in the paper.",
                ),
            },
            "model": Q_NETWORK_CONFIG,
        }
    )


def make_network(learner_config: Config, env_config: Config) -> QNetwork:
    """Builds the network; agent and learner use the same one."""
    return QNetwork(
        env_config.obs_spec,
        env_config.action_spec.dim[0],
        model=learner_config.model,
        dueling=learner_config.algo.dueling,
        distribution=learner_config.algo.distribution,
    )


class DQNAgent(Agent):
    """Takes the action of the largest value; with probability epsilon a random action."""

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.q_network = self.make_model(self.learner_config, self.env_config).freeze()
        self.num_actions: int = self.env_config.action_spec.dim[0]
        if self.q_network.noise is not None and self.agent_mode is AgentMode.training:
            self.q_network.noise.generator = self.generator
        key = "learner_config.algo.epsilon"
        self.schedule = make_schedule(algo.epsilon, key, least=0.0, most=1.0)
        self.epsilon_alpha: float = algo.epsilon_alpha
        self.epsilon_agents: int = algo.epsilon_agents or self.num_agents
        acting = self.learner_config.replay.priority.initial == "acting"
        if acting and self.q_network.kind == "categorical":
            raise ConfigError(
                "learner_config.replay.priority.initial is acting, but with algo.distribution.kind "
                "categorical priorities are divergences, not errors of values: set initial to "
                "highest, or kind to quantile or none"
            )
        self.sends_values = acting and self.agent_mode is AgentMode.training
        stochastic = self.agent_mode == AgentMode.eval_stochastic
        self.eval_epsilon: float = algo.eval_epsilon if stochastic else 0.0
        self._epsilon_at: tuple[Progress | None, float] = (None, 0.0)
        # A subclass that chooses actions in its own way gets tensors.
        own = type(self).act is DQNAgent.act and type(self).explore is DQNAgent.explore
        self._array_values = self.q_network.on_arrays() if own and not self.sends_values else None
        self.acts_on_arrays = self._array_values is not None

    def act(self, obs: Any) -> Any:
        """Returns the actions `[N]` of observations `[N, ...]`.

        In training also columns: with `priority.initial: acting` the values of the taken and of the
        best actions, `q_taken` and `q_greedy`; with a memory the state before the row, `memory`.
        """
        if self.q_network.core is not None:
            return self._remember(obs, self.q_network.core)
        q_values = self.q_network(obs)
        actions = self.explore(q_values)
        if not self.sends_values:
            return actions
        taken = taken_value(q_values, torch.from_numpy(actions))
        return actions, {"q_taken": taken.numpy(), "q_greedy": greedy_value(q_values).numpy()}

    def _remember(self, obs: Any, core: Any) -> Any:
        before = self.initial_state(len(self.first)) if self.state is None else self.state
        first = torch.as_tensor(self.first)
        q_values, state = self.q_network.act(obs, before, first, **rewards_of(self))
        actions = self.explore(q_values)
        # The action that is taken, a random one too.
        self.state = core.remember(state, torch.as_tensor(actions)) if core.inputs else state
        if self.agent_mode is not AgentMode.training:
            return actions
        return actions, {"memory": before.numpy()}

    def initial_state(self, n: int) -> Any:
        """Returns zeros `[n, state_size]`; None without a memory."""
        core = self.q_network.core
        return None if core is None else core.initial_state(n)

    def act_on_arrays(self, obs: npt.NDArray[Any]) -> Any:
        """Returns the actions `[N]` of observations `[N, ...]`."""
        values = None
        if self._array_values is not None:
            with self.q_network.parameter_lock:
                values = self._array_values(obs)
        return (
            self.act(torch.from_numpy(obs)) if values is None else self._explore(values.argmax(1))
        )

    def explore(self, q_values: torch.Tensor) -> npt.NDArray[np.int64]:
        """Returns actions `[N]` from values `[N, A]`, a share of epsilon of them random.

        Where the mask of the observation has set a value to `MASKED_VALUE`, never that action.
        """
        greedy = q_values.argmax(1).cpu().numpy()
        if self.q_network.mask is None or not self.epsilon:
            return self._explore(greedy)
        return self._explore(greedy, legal_values(q_values).cpu().numpy())

    def _explore(
        self, greedy: npt.NDArray[np.int64], legal: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[np.int64]:
        epsilon = self.epsilon
        if not epsilon:
            return greedy
        return epsilon_greedy(greedy, self.num_actions, epsilon, self.rng, legal)

    @property
    def epsilon(self) -> float:
        """Current share of random actions."""
        if self.agent_mode is not AgentMode.training:
            return self.eval_epsilon
        progress, epsilon = self._epsilon_at
        if progress is not self.progress:
            epsilon = self.schedule.at(self.progress)
            epsilon = agent_epsilon(epsilon, self.epsilon_alpha, self.agent_id, self.epsilon_agents)
            self._epsilon_at = (self.progress, epsilon)
        return epsilon

    def module_dict(self) -> dict[str, Module]:
        """Returns the network that acts."""
        return {"q_network": self.q_network}

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class DQNLearner(QLearner):
    """Moves Q of the taken actions towards reward plus discounted value of the next state."""

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.learner_config.algo
        self.huber_kappa: float = algo.huber_kappa
        self.kappa: float = algo.distribution.kappa
        self.cql_alpha: float = algo.cql_alpha
        kinds = {"none": self.error, "categorical": self.divergence, "quantile": self.quantiles}
        self._losses: Callable[[Batch], Losses] = kinds[self.q_network.kind]

    def loss(self, batch: Batch) -> Loss:
        """Returns the loss of a batch, with its priorities."""
        losses, metrics, priorities = self._losses(batch)
        metrics["td_error"] = priorities.mean()
        if self.cql_alpha:
            # Of distributions the means.
            gaps = conservative_loss(self.q_network(batch.obs), batch.actions)
            losses = losses + self.cql_alpha * gaps
            metrics["conservative_loss"] = gaps.detach().mean()
        return Loss((losses * batch.weights).mean(), metrics, priorities)

    def error(self, batch: Batch) -> Losses:
        """Returns the losses of values; the priorities are the absolute TD errors."""
        target_tm1 = self.bootstrap(batch)
        # Two passes of B rows, not one of 2 B: its backward pass would also cover the target's
        # rows.
        q_tm1 = taken_value(self.q_network(batch.obs), batch.actions)
        if self.huber_kappa:
            losses = huber_loss(q_tm1, target_tm1, self.huber_kappa)
        else:
            losses = squared_loss(q_tm1, target_tm1)
        q_tm1 = q_tm1.detach()
        return losses, {"mean_q": q_tm1.mean()}, (target_tm1 - q_tm1).abs_()

    def divergence(self, batch: Batch) -> Losses:
        """Returns the losses of categorical distributions; the priorities are the divergences."""
        atoms = self.q_network.atoms
        discounts = self.discounts(batch)
        moved = (self.next_distribution(batch).softmax(-1), atoms, batch.rewards, discounts)
        target = categorical_projection(*moved)
        logits = taken_distribution(self.q_network.distribution(batch.obs), batch.actions)
        losses = categorical_loss(logits, target)
        metrics = {
            "mean_q": self.q_network.mean(logits.detach()).mean(),
            "clipped_mass": clipped_mass(*moved).mean(),
        }
        return losses, metrics, categorical_divergence(losses, target)

    def quantiles(self, batch: Batch) -> Losses:
        """Returns the losses of quantiles; the priorities are the absolute errors of the means."""
        targets = td_target(
            batch.rewards.unsqueeze(1),
            self.discounts(batch).unsqueeze(1),
            self.next_distribution(batch),
        )
        theta = taken_distribution(self.q_network.distribution(batch.obs), batch.actions)
        losses = quantile_loss(theta, targets, self.kappa)
        mean_q = theta.detach().mean(1)
        return losses, {"mean_q": mean_q.mean()}, (targets.mean(1) - mean_q).abs_()

    @torch.no_grad()
    def next_distribution(self, batch: Batch) -> torch.Tensor:
        """Returns the target network's outputs `[B, K]` of the best next actions."""
        network, obs = self.target.module, batch.obs_next
        x_t = network.distribution(obs)
        values = self.q_network(obs) if self.double else network.mask_values(network.mean(x_t), obs)
        return taken_distribution(x_t, values.argmax(1))

    def discounts(self, batch: Batch) -> torch.Tensor:
        """Returns the discounts `[B]`; 0 where nothing is legal, as `mask_values` sets values."""
        mask = self.q_network.mask
        discounts: torch.Tensor = batch.discounts
        return discounts if mask is None else discounts * mask.legal(batch.obs_next).any(-1)

    def bootstrap(self, batch: Batch) -> torch.Tensor:
        """Returns the targets `[B]` of the Q values."""
        # Not as a decorator, which takes twice as long.
        with torch.no_grad():
            q_t = self.target.module(batch.obs_next)
            if self.double:
                v_t = double_q_value(q_t, self.q_network(batch.obs_next))
            else:
                v_t = greedy_value(q_t)
            return td_target(batch.rewards, batch.discounts, v_t)

    @classmethod
    def default_config(cls) -> Config:
        return default_config()


class DQN(Algorithm):
    """Deep Q-learning, for discrete actions."""

    agent = DQNAgent
    learner = DQNLearner
    actions = ("discrete",)
    sends_values = True
    # Short chunks, few unacked: rows that wait there come from old parameters.
    session_config = MappingProxyType({"sender": {"flush_iteration": 16, "max_unacked_chunks": 2}})
