"""Random actions: how many of them each agent takes, and taking them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def agent_epsilon(epsilon: float, alpha: float, agent_id: int, num_agents: int) -> float:
    """The share of random actions of one agent: epsilon ** (1 + alpha i / (N - 1)).

    Horgan et al. 2018, section 4.1. Agents between cautious and curious fill replay with a mixture.
    An agent alone, or alpha 0, gets epsilon itself; further agents begin again at the first place,
    so that the mixture stays the same however many there are.
    """
    if num_agents <= 1:
        return epsilon
    place = agent_id % num_agents / (num_agents - 1)
    return float(epsilon ** (1.0 + alpha * place))


def epsilon_greedy(
    greedy: npt.NDArray[np.int64], num_actions: int, epsilon: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Replaces actions `greedy` `[N]`, each with probability epsilon by any of all actions."""
    draws = rng.random(len(greedy))
    exploring = (draws < epsilon).nonzero()[0]
    if not exploring.size:
        return greedy
    actions = greedy.copy()
    # A draw below epsilon is uniform there, so it can choose the action too. It may round up to
    # num_actions, which is none.
    random = draws[exploring] * (num_actions / epsilon)
    actions[exploring] = np.minimum(random, num_actions - 1)
    return actions
