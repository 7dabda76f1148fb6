"""Epsilon-greedy actions, with an epsilon for each agent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def agent_epsilon(epsilon: float, alpha: float, agent_id: int, num_agents: int) -> float:
    """Returns epsilon of one agent: epsilon ** (1 + alpha i / (N - 1)).

    Horgan et al. 2018, section 4.1: agents with different epsilons fill replay with a mixture. A
    single agent, or alpha 0, gets epsilon itself. Agents beyond N start again at i = 0, so that the
    mixture does not change with their number.
    """
    if num_agents <= 1:
        return epsilon
    place = agent_id % num_agents / (num_agents - 1)
    return float(epsilon ** (1.0 + alpha * place))


def epsilon_greedy(
    greedy: npt.NDArray[np.int64], num_actions: int, epsilon: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Replaces actions `greedy` `[N]`, each with probability epsilon, by a uniform draw."""
    draws = rng.random(len(greedy))
    # Of one environment most steps end here; comparing as floats is cheaper than as arrays.
    if draws.min() >= epsilon:
        return greedy
    exploring = (draws < epsilon).nonzero()[0]
    actions = greedy.copy()
    # A draw below epsilon is uniform there, so it also selects the action. Rounding may yield
    # num_actions, which is no valid action.
    random = draws[exploring] * (num_actions / epsilon)
    actions[exploring] = np.minimum(random, num_actions - 1)
    return actions
