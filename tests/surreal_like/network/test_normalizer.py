"""Moments by parts are the moments of all; who may learn them, and who only uses them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.algorithm.registry import find_algorithm
from surreal_like.data.batch import Batch
from surreal_like.network.normalizer import Moments, Normalizer
from tests.surreal_like.algorithm.unrolls import DISCRETE, PAIR, VECTOR, configs, make_batch

MIXED = {**PAIR, "c": {"type": "uint8", "dim": [2]}}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(-1e4, 1e4))
def test_moments_by_parts_are_the_moments_of_all(sizes: list[int], offset: float) -> None:
    rng = np.random.default_rng(sum(sizes))
    parts = [offset + rng.standard_normal((size, 3)) * [1, 5, 0.1] for size in sizes]
    moments = Moments((3,))
    for part in parts:
        moments.update(torch.tensor(part))
    whole = np.concatenate(parts)
    assert float(moments.count) == len(whole)
    assert moments.mean.numpy() == pytest.approx(whole.mean(0), rel=1e-9, abs=1e-9)
    assert moments.variance.numpy() == pytest.approx(whole.var(0), rel=1e-6, abs=1e-9)


def test_what_is_normalised_has_mean_0_and_deviation_1() -> None:
    moments, x = Moments((2,)), 50.0 + 7.0 * torch.randn(4000, 2)
    moments.update(x)
    assert moments(x).mean(0).tolist() == pytest.approx([0, 0], abs=1e-4)
    assert moments(x).std(0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-4)
    assert moments(torch.full((1, 2), 1e6)).tolist() == [[10.0, 10.0]]


def test_before_the_first_update_nothing_changes() -> None:
    x = torch.randn(5, 2)
    assert torch.equal(Moments((2,))(x), x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_not_learned(bad: float) -> None:
    moments = Moments((2,))
    moments.update(torch.randn(5, 2))
    before = {name: each.clone() for name, each in moments.state_dict().items()}
    moments.update(torch.tensor([[1.0, bad], [2.0, 3.0]]))
    assert all(torch.equal(each, before[name]) for name, each in moments.state_dict().items())


def test_only_floats_are_normalised() -> None:
    normalizer = Normalizer(MIXED)
    obs = {
        "a": 9.0 + torch.randn(6, 4),
        "b": torch.randint(0, 3, (6,)),
        "c": torch.randint(0, 255, (6, 2), dtype=torch.uint8),
    }
    normalizer.update(obs)
    seen = normalizer(dict(reversed(obs.items())))
    assert torch.equal(seen["b"], obs["b"])
    assert torch.equal(seen["c"], obs["c"])
    assert seen["a"].mean(0).tolist() == pytest.approx([0.0] * 4, abs=1e-5)


def learner_state(batch: Batch, memory: str) -> torch.Tensor | None:
    return batch.extras["memory"][0] if memory else None


@pytest.mark.parametrize("name", ["ppo", "impala"])
@pytest.mark.parametrize("memory", ["", "gru"])
def test_the_learner_learns_moments_and_the_agent_gets_them(name: str, memory: str) -> None:
    algorithm: Any = find_algorithm(name)
    model = {"hidden_sizes": [8], "memory": memory, "normalize_obs": True}
    learner = algorithm.learner(**configs(algorithm, learner={"model": model}))
    agent = algorithm.agent(
        **configs(algorithm, learner={"model": model}), agent_id=0, agent_mode="training"
    )
    batch = make_batch(DISCRETE)
    batch["obs"] = 20.0 + 3.0 * batch.obs
    if memory:
        batch.extras["memory"] = torch.zeros(*batch.mask.shape, 64)
    learner.learn(batch)
    agent.network.load_flat(learner.network.read_flat())
    moments = agent.network.normalizer.parts[0]
    rows = batch.obs[:-1].flatten(0, 1)
    assert torch.allclose(moments.shift, rows.mean(0), atol=1e-4)
    before = learner.network.normalizer.parts[0].count.item()
    first = torch.ones(1, 4, dtype=torch.bool)
    agent.first = first[0].numpy()
    _, extras = agent.act(batch.obs[0])
    assert moments.count.item() == before == len(rows)
    # Both see the same, and not what was observed.
    policy, _ = learner.network.unroll(batch.obs[:1], learner_state(batch, memory), first)
    seen = policy.columns()["logits"][0].detach()
    assert torch.allclose(seen, torch.tensor(extras["logits"]), atol=1e-6)
    learner.network.normalizer = None
    policy, _ = learner.network.unroll(batch.obs[:1], learner_state(batch, memory), first)
    assert not torch.allclose(seen, policy.columns()["logits"][0].detach(), atol=1e-4)


def test_a_network_without_it_has_no_moments() -> None:
    algorithm: Any = find_algorithm("ppo")
    learner = algorithm.learner(**configs(algorithm, obs_spec=VECTOR))
    assert not [name for name in learner.network.state_dict() if "normalizer" in name]
