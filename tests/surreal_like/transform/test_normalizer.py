"""Moments by parts are the moments of all; who may learn them, and who only uses them."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.algorithm.registry import find_algorithm
from surreal_like.data.batch import Batch
from surreal_like.transform.normalizer import Moments, Normalizer
from tests.surreal_like.algorithm.transitions import ACTION, make_transitions
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


OFF_POLICY = {"dqn": "q_network", "ddpg": "policy", "td3": "policy", "sac": "policy"}


def off_policy(name: str) -> tuple[Any, Any, Batch]:
    """Agent, learner, and a batch of observations far from 0."""
    algorithm: Any = find_algorithm(name)
    torch.manual_seed(0)
    options = configs(
        algorithm,
        DISCRETE if name == "dqn" else ACTION,
        learner={"model": {"hidden_sizes": [8], "normalize_obs": True}},
    )
    batch = make_transitions()
    for key in ("obs", "obs_next"):
        batch[key] = 20.0 + 3.0 * batch[key]
    if name == "dqn":
        batch["actions"] = torch.arange(len(batch.weights)) % 3
    agent = algorithm.agent(**options, agent_id=0, agent_mode="eval_deterministic")
    return agent, algorithm.learner(**options), batch


@pytest.mark.parametrize("name", OFF_POLICY)
def test_so_do_learners_of_rows_and_all_their_networks(name: str) -> None:
    agent, learner, batch = off_policy(name)
    for iteration in range(120):
        learner.iteration = iteration
        learner.learn(batch)
    network, acting = (getattr(each, OFF_POLICY[name]) for each in (learner, agent))
    acting.load_flat(network.read_flat())
    saved = [each.module for each in learner.saveables().values() if hasattr(each, "module")]
    critics = [learner.critics] if hasattr(learner, "critics") else []
    for each in (acting, network, *saved, *critics):
        [moments] = each.normalizer.parts
        assert torch.allclose(moments.shift, batch.obs.mean(0), atol=1e-4)
    # Nobody learned by looking.
    before = acting.normalizer.parts[0].count.item()
    agent.act(batch.obs)
    assert acting.normalizer.parts[0].count.item() == before == 120 * len(batch.obs)
    # What is seen is not what was observed.
    outs = [network(batch.obs)]
    network.normalizer = None
    outs.append(network(batch.obs))
    means = [getattr(getattr(out, "gaussian", None), "mean", out) for out in outs]
    assert not torch.allclose(means[0], means[1], atol=1e-3)


@pytest.mark.parametrize("name", OFF_POLICY)
def test_moments_are_restored_with_the_rest(name: str) -> None:
    _, learner, batch = off_policy(name)
    _, again, _ = off_policy(name)
    learner.learn(batch)
    parts = zip(again.module_dict().values(), learner.module_dict().values(), strict=True)
    for mine, theirs in parts:
        mine.load_flat(theirs.read_flat())
    for key, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[key].state_dict()))
    if hasattr(learner, "generator"):
        again.generator.set_state(learner.generator.get_state())
    for each in (learner, again):
        each.iteration = 1
        each.learn(batch)
    for mine, theirs in zip(
        again.module_dict().values(), learner.module_dict().values(), strict=True
    ):
        assert mine.hash() == theirs.hash()
