"""Random actions."""

import numpy as np
import pytest

from surreal_like.exploration.schedule import agent_epsilon, epsilon_greedy


def test_agents_get_the_epsilons_of_the_paper() -> None:
    # epsilon 0.4, alpha 7, eight agents: exponents 1 to 8.
    found = [agent_epsilon(0.4, 7.0, agent, 8) for agent in range(8)]
    assert found == pytest.approx([0.4**power for power in range(1, 9)])


@pytest.mark.parametrize(
    ("alpha", "agent", "agents", "expected"),
    [
        (7.0, 0, 1, 0.4),  # alone: exponent 1
        (7.0, 3, 1, 0.4),
        (0.0, 5, 8, 0.4),  # alpha 0: all alike
        (7.0, 9, 8, 0.4**2),  # joined later: as agent 1
        (7.0, 1007, 8, 0.4**8),
        (7.0, 8, 8, 0.4),
        (7.0, 0, 0, 0.4),
    ],
)
def test_agents_at_the_borders(alpha: float, agent: int, agents: int, expected: float) -> None:
    assert agent_epsilon(0.4, alpha, agent, agents) == pytest.approx(expected)


def test_epsilon_0_and_1() -> None:
    rng = np.random.default_rng(0)
    greedy = np.full(2000, 3, np.int64)
    assert np.array_equal(epsilon_greedy(greedy, 4, 0.0, rng), greedy)
    counts = np.bincount(epsilon_greedy(greedy, 4, 1.0, rng), minlength=4)
    assert counts.min() > 400


def test_the_share_of_random_actions_is_epsilon() -> None:
    rng = np.random.default_rng(0)
    greedy = np.zeros(20_000, np.int64)
    actions = epsilon_greedy(greedy, 2, 0.3, rng)
    assert actions.dtype == np.int64
    # Half of the random ones are the greedy one.
    assert actions.mean() == pytest.approx(0.15, abs=0.01)


def test_random_actions_are_uniform_over_the_legal_ones() -> None:
    legal = np.array([[True, False, True, True], [False, True, False, False]])
    greedy = np.repeat(np.array([0, 1]), 30_000)
    rng = np.random.default_rng(0)
    found = epsilon_greedy(greedy, 4, 1.0, rng, np.repeat(legal, 30_000, 0))
    counts = np.bincount(found[:30_000], minlength=4)
    assert counts[1] == 0
    assert counts[[0, 2, 3]] == pytest.approx([10_000] * 3, rel=0.05)
    assert (found[30_000:] == 1).all()
    some = epsilon_greedy(greedy, 4, 0.3, rng, np.repeat(legal, 30_000, 0))
    assert np.mean(some[:30_000] != 0) == pytest.approx(0.3 * 2 / 3, rel=0.05)
