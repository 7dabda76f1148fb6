"""Behaviour cloning: the loss is the formula, masks are kept, and the demonstrator is found."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.addons.offline.bc import BC, BCAgent, BCLearner
from surreal_like.addons.offline.headed import LEAST_LOG_STD
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.data.batch import Batch
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm.unrolls import ACTIONS, BOX, DISCRETE, SEVERAL, VECTOR, configs

BOUNDED = {"type": "continuous", "dim": [2], "low": [-2.0, 0.0], "high": [2.0, 4.0]}
NUMBER = {"type": "continuous", "dim": []}
SPECS = {**ACTIONS, "bounded": BOUNDED, "number": NUMBER}
MASKED = {"action_mask": {"type": "int8", "dim": [3]}, "x": VECTOR}
M = 64


def make_learner(spec: Any, obs_spec: Any = VECTOR, **changed: Any) -> BCLearner:
    torch.manual_seed(0)
    return BCLearner(**configs(BC, spec, obs_spec=obs_spec, **changed))


def make_agent(spec: Any, mode: str, obs_spec: Any = VECTOR, **changed: Any) -> BCAgent:
    made = configs(BC, spec, obs_spec=obs_spec, **changed)
    return BCAgent(**made, agent_id=0, agent_mode=mode)


def demonstrate(spec: Any, seed: int = 0) -> Batch:
    """Rows whose action follows from the first parts of the observation."""
    obs = torch.randn(M, 4, generator=torch.Generator().manual_seed(seed))
    first, second = (obs[:, 0] > 0).long(), (obs[:, 1] > 0).long()
    if spec["type"] == "discrete":
        actions = first + second
    elif spec["type"] == "multi_discrete":
        actions = torch.stack((first * 2, second), 1)
    else:
        dim = spec["dim"]
        actions = obs[:, 0].tanh().reshape(M, *[1] * len(dim)).expand(M, *dim).clone()
    return Batch(obs=obs, actions=actions, weights=torch.ones(M), rewards=torch.zeros(M))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_demonstrators_actions_are_learned(spec: Any) -> None:
    learner = make_learner(spec, learning_rate=1e-2)
    for seed in range(200):
        learner.learn(demonstrate(spec, seed))
    batch = demonstrate(spec, 1000)
    agent = make_agent(spec, "eval_deterministic")
    agent.policy.copy_from(learner.policy)
    found, wanted = agent.act(batch.obs), batch.actions.numpy()
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if spec["type"] == "continuous":
        assert np.median(np.abs(found - wanted)) < 0.15
    else:
        # Some observations lie next to the border between two actions.
        assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("policy", ["gaussian", "beta", "squashed_gaussian"])
def test_actions_at_the_bounds_are_learned(policy: str) -> None:
    """They are an infinite way from the mean of the Gaussian that is squashed."""
    learner = make_learner(BOUNDED, learner={"model": {"policy": policy, "hidden_sizes": [8]}})
    batch = demonstrate(BOUNDED)
    batch["actions"] = torch.tensor([[2.0, 4.0], [-2.0, 0.0]])[(batch.obs[:, 0] > 0).long()]
    losses = [learner.learn(batch) for _ in range(100)]
    assert all(math.isfinite(float(each["loss"])) for each in losses)
    assert losses[-1]["skipped"] == 0
    assert float(losses[-1]["loss"]) < float(losses[0]["loss"])


def test_the_loss_is_the_formula() -> None:
    learner, batch = make_learner(SEVERAL), demonstrate(SEVERAL)
    batch["weights"] = torch.rand(M)
    with torch.no_grad():
        logits = learner.policy(batch.obs).columns()["logits"].tolist()
    losses = []
    for row, (one, other) in zip(logits, batch.actions.tolist(), strict=True):
        chances = [math.exp(x) for x in row]
        chance = chances[one] / sum(chances[:3]) * chances[3 + other] / sum(chances[3:])
        losses.append(-math.log(chance))
    expected = sum(w * x for w, x in zip(batch.weights.tolist(), losses, strict=True)) / M
    found = learner.loss(batch)
    total: Any = found.total
    assert total.item() == pytest.approx(expected, rel=1e-4)
    assert found.priorities is not None
    wanted = [math.log(1 + math.exp(x)) for x in losses]
    assert found.priorities.tolist() == pytest.approx(wanted, rel=1e-4)


def test_a_gaussian_is_that_of_the_formula() -> None:
    learner, batch = make_learner(BOX, learner={"model": {"log_std": -0.5}}), demonstrate(BOX)
    with torch.no_grad():
        means = learner.policy(batch.obs).mean.tolist()
    loss = 0.0
    for mean, taken in zip(means, batch.actions.tolist(), strict=True):
        for m, a in zip(mean, taken, strict=True):
            square = ((a - m) / math.exp(-0.5)) ** 2
            loss += (0.5 * square - 0.5 + 0.5 * math.log(2 * math.pi)) / M
    assert float(learner.learn(batch)["loss"]) == pytest.approx(loss, rel=1e-4)


def test_deviations_count_as_no_less_than_a_least_one() -> None:
    """Recordings without noise would make densities of any size."""
    losses = []
    for log_std in (LEAST_LOG_STD, LEAST_LOG_STD - 3.0):
        learner = make_learner(BOX, learner={"model": {"log_std": log_std, "hidden_sizes": [8]}})
        total: Any = learner.loss(demonstrate(BOX)).total
        losses.append(total.item())
    assert losses[0] == pytest.approx(losses[1])


def masked() -> Batch:
    """Rows in which two of three actions are legal."""
    batch = demonstrate(DISCRETE)
    mask = torch.ones(M, 3, dtype=torch.int8)
    mask[torch.arange(M), (batch.actions + 1) % 3] = 0
    batch["obs"] = {"x": batch.obs, "action_mask": mask}
    return batch


def test_illegal_actions_have_no_share_in_the_loss() -> None:
    learner, batch = make_learner(DISCRETE, MASKED), masked()
    with torch.no_grad():
        logits = learner.policy(batch.obs).columns()["logits"]
    loss = 0.0
    for row, legal, taken in zip(logits, batch.obs["action_mask"], batch.actions, strict=True):
        total = sum(math.exp(float(x)) for x, ok in zip(row, legal, strict=True) if ok)
        loss -= math.log(math.exp(float(row[taken])) / total) / M
    assert float(learner.learn(batch)["loss"]) == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("mode", ["training", "eval_stochastic", "eval_deterministic"])
def test_agents_take_legal_actions_only(mode: str) -> None:
    agent, batch = make_agent(DISCRETE, mode, MASKED), masked()
    actions = agent.act(batch.obs)
    assert batch.obs["action_mask"].numpy()[np.arange(M), actions].all()


def test_an_agent_draws_in_training_and_not_in_evaluation() -> None:
    obs = torch.randn(1, 4).expand(2000, 4)
    for mode in ("training", "eval_stochastic"):
        assert make_agent(BOX, mode).act(obs).std(0).min() > 0.5
        assert len(np.unique(make_agent(DISCRETE, mode).act(obs))) == 3
    best = make_agent(BOX, "eval_deterministic").act(obs)
    assert (best == best[0]).all()


def test_agent_and_learner_have_the_same_parameters_and_no_values() -> None:
    each = (make_agent(BOX, "training"), make_learner(BOX))
    one, other = (manifest_of(named_tensors(x.module_dict())) for x in each)
    assert one == other
    assert not [name for name in one if "value" in name]


def test_a_restored_learner_goes_on_to_the_same_parameters() -> None:
    learner, again = make_learner(DISCRETE), make_learner(DISCRETE)
    for seed in range(4):
        learner.learn(demonstrate(DISCRETE, seed))
    again.policy.load_flat(learner.policy.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    for seed in range(4, 8):
        for each in (learner, again):
            each.learn(demonstrate(DISCRETE, seed))
    assert again.policy.hash() == learner.policy.hash()


@pytest.mark.parametrize("kind", ["UniformReplay", "PrioritizedReplay"])
def test_it_learns_from_replays_of_rows(kind: str) -> None:
    algorithm: type[Algorithm] = BC
    algorithm.check_replay({"replay": {"type": kind}})
