"""Noise on actions: its deviation, its memory, and how agents differ."""

from typing import Any

import numpy as np
import pytest

from surreal_like.exploration.noise import NOISE_CONFIG, Noise, agent_sigma


def make(agent_id: int = 0, num_agents: int = 1, **changed: Any) -> Noise:
    return Noise({**NOISE_CONFIG, **changed}, agent_id=agent_id, num_agents=num_agents)


def nowhere(n: int) -> Any:
    return np.zeros(n, np.bool_)


def test_gaussian_noise_has_its_deviation_and_no_memory() -> None:
    noise, rng = make(sigma=0.3), np.random.default_rng(0)
    first, second = (noise.draw(nowhere(20_000), 1, rng) for _ in range(2))
    assert first.dtype == np.float32
    assert first.shape == (20_000, 1)
    assert first.std() == pytest.approx(0.3, rel=0.03)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.03


def test_ou_noise_is_the_recursion() -> None:
    noise = make(kind="ou", sigma=0.3, theta=0.25)
    rng, twin = np.random.default_rng(0), np.random.default_rng(0)
    state = np.zeros((3, 2))
    for step in range(20):
        first = np.array([step % 5 == 0, False, step == 7])
        found = noise.draw(first, 2, rng)
        fresh = 0.3 * twin.standard_normal((3, 2), np.float32)
        for n in range(3):
            if first[n]:
                state[n] = 0.0
            state[n] += 0.25 * (0.0 - state[n]) + fresh[n]
        assert found == pytest.approx(state, abs=1e-5)


def test_ou_noise_is_remembered_by_stream() -> None:
    noise = make(kind="ou", sigma=0.3, theta=0.25)
    rng, twin, order = (np.random.default_rng(0) for _ in range(3))
    state = np.zeros((6, 2))
    for _ in range(50):
        streams = order.permutation(6)[: order.integers(1, 7)]
        first = order.random(len(streams)) < 0.2
        found = noise.draw(first, 2, rng, streams)
        fresh = 0.3 * twin.standard_normal((len(streams), 2), np.float32)
        state[streams[first]] = 0.0
        state[streams] = 0.75 * state[streams] + fresh
        assert found == pytest.approx(state[streams], abs=1e-5)


def test_noise_without_deviation_is_none() -> None:
    assert not make(sigma=0.0).draw(nowhere(5), 2, np.random.default_rng(0)).any()


@pytest.mark.parametrize(
    ("agent_id", "num_agents", "sigma"),
    [(0, 3, 0.1), (1, 3, 0.25), (2, 3, 0.4), (3, 3, 0.1), (0, 1, 0.1)],
)
def test_agents_stand_on_a_line(agent_id: int, num_agents: int, sigma: float) -> None:
    assert agent_sigma(0.1, 0.4, agent_id, num_agents) == pytest.approx(sigma)
    assert make(agent_id, num_agents, sigma=0.1, last_sigma=0.4).sigma == pytest.approx(sigma)
    assert make(agent_id, num_agents, sigma=0.1).sigma == 0.1
