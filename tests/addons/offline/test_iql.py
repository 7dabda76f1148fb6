"""Implicit Q-learning: the updates are the formulas, and the better recorded actions are found."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.offline.iql import IQL, IQLAgent, IQLLearner
from surreal_like.data.batch import Batch
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm.transitions import SIZE, check_moved, make_transitions, options


def make_learner(**algo: Any) -> IQLLearner:
    torch.manual_seed(0)
    learner = IQLLearner(**options(IQL, **algo))
    with torch.no_grad():
        # Values, targets and advantages of different sizes, and means that need their bounds.
        for each in (*learner.target.module.parameters(), *learner.policy.parameters()):
            each.mul_(3.0)
        head: Any = learner.policy.head
        head.log_std.copy_(torch.tensor([0.3, -0.4]))
    return learner


def make_agent(mode: str = "training") -> IQLAgent:
    torch.manual_seed(0)
    return IQLAgent(**options(IQL), agent_id=0, agent_mode=mode)


def unit(batch: Batch) -> torch.Tensor:
    positions: torch.Tensor = (batch.actions - torch.tensor([0.0, 2.0])) / 2.0
    return positions


def test_the_critic_loss_is_the_formula() -> None:
    learner, batch = make_learner(), make_transitions()
    with torch.no_grad():
        v_t = learner.value(batch.obs_next).tolist()
        q_tm1 = learner.critics(batch.obs, unit(batch))
    expected = 0.0
    for row in range(SIZE):
        y = batch.rewards[row].item() + batch.discounts[row].item() * v_t[row]
        for q in q_tm1[:, row].tolist():
            expected += batch.weights[row].item() * 0.5 * (y - q) ** 2 / SIZE
    assert float(learner.learn(batch)["loss"]) == pytest.approx(expected, rel=1e-4)


def test_the_losses_of_values_and_policy_are_the_formulas() -> None:
    learner, batch = make_learner(expectile=0.8, temperature=2.0), make_transitions()
    with torch.no_grad():
        q = learner.target.module(batch.obs, unit(batch))
        v = learner.value(batch.obs).tolist()
        mean, std = learner.policy(batch.obs).mean, [math.exp(0.3), math.exp(-0.4)]
    assert mean.abs().max() < 1.0
    value = policy = 0.0
    signs = set()
    for row in range(SIZE):
        weight = batch.weights[row].item() / SIZE
        u = min(q[:, row].tolist()) - v[row]
        signs.add(u > 0)
        value += weight * abs(0.8 - (u < 0)) * u**2
        log_prob = sum(
            -0.5 * ((a - m) / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi)
            for a, m, s in zip(unit(batch)[row].tolist(), mean[row].tolist(), std, strict=True)
        )
        policy -= weight * min(math.exp(2.0 * u), 100.0) * log_prob
    assert signs == {True, False}
    found = learner.policy_loss(batch)
    assert float(found.metrics["value_loss"]) == pytest.approx(value, rel=1e-4)
    assert float(found.metrics["policy_loss"]) == pytest.approx(policy, rel=1e-4)


def test_each_loss_moves_its_own_network() -> None:
    learner, batch = make_learner(), make_transitions()
    loss: Any = learner.policy_loss(batch)
    networks = {"policy": learner.policy, "value": learner.value, "critics": learner.critics}
    for name in ("policy", "value"):
        for each in networks.values():
            each.zero_grad(set_to_none=True)
        loss.total[name].backward()
        moved = {
            key
            for key, network in networks.items()
            if any(x.grad is not None and x.grad.any() for x in network.parameters())
        }
        assert moved == {name}


@pytest.mark.slow
def test_a_high_expectile_is_near_the_best_recorded_action() -> None:
    """One state; half of its rows have the value 0, the others the value 1."""
    found = []
    for expectile in (0.5, 0.9):
        learner = make_learner(expectile=expectile, critic_learning_rate=1e-2)
        batch = make_transitions()
        for name in ("obs", "obs_next"):
            batch[name] = torch.ones(SIZE, 4)
        batch["actions"] = batch.actions.clone()
        batch.actions[:, 0] = torch.tensor([-2.0, 2.0]).repeat(SIZE // 2)
        batch["rewards"] = torch.tensor([0.0, 1.0]).repeat(SIZE // 2)
        batch["discounts"] = torch.zeros(SIZE)
        batch["weights"] = torch.ones(SIZE)
        for _ in range(800):
            learner.learn(batch)
        with torch.no_grad():
            found.append(float(learner.value(batch.obs)[0]))
    # The expectile of a fair coin is its share itself.
    assert found == pytest.approx([0.5, 0.9], abs=0.1)


@pytest.mark.slow
def test_the_better_recorded_actions_are_learned() -> None:
    learner = make_learner(learning_rate=1e-2, critic_learning_rate=1e-2, tau=0.1, temperature=10.0)
    for seed in range(300):
        batch = make_transitions(seed)
        batch["obs"] = torch.randn(64, 4)
        batch["obs_next"] = torch.randn(64, 4)
        # The recorded actions are a coin's; the first part of the observation has the better one.
        heads = torch.randint(0, 2, (64,)) * 2.0 - 1.0
        batch["actions"] = torch.stack((1.5 * heads, torch.full((64,), 3.0)), 1)
        batch["rewards"] = heads * batch.obs[:, 0].sign()
        batch["discounts"], batch["weights"] = torch.zeros(64), torch.ones(64)
        learner.learn(batch)
    agent = make_agent("eval_deterministic")
    agent.policy.copy_from(learner.policy)
    obs = torch.randn(200, 4)
    acted = agent.act(obs)
    assert (np.sign(acted[:, 0]) == obs[:, 0].sign().numpy()).mean() > 0.9
    assert np.median(np.abs(acted[:, 0])) > 1.0
    assert np.median(acted[:, 1]) == pytest.approx(3.0, abs=0.2)


def test_actions_stay_within_their_bounds() -> None:
    obs = torch.randn(1, 4).expand(3000, 4)
    drawn = make_agent().act(obs)
    assert drawn.dtype == np.float32
    assert drawn.std(0).min() > 0.3
    assert (drawn >= [-2.0, 0.0]).all()
    assert (drawn <= [2.0, 4.0]).all()
    best = make_agent("eval_deterministic").act(obs)
    assert (best == best[0]).all()


def test_the_target_moves_by_its_share_towards_the_critics() -> None:
    learner = make_learner(tau=0.25)
    before = copy.deepcopy(learner.target.module)
    learner.learn(make_transitions())
    check_moved(before, learner.critics, learner.target.module, 0.25)


def test_a_restored_learner_goes_on_to_the_same_parameters() -> None:
    learner, again = make_learner(), make_learner()
    for seed in range(4):
        learner.learn(make_transitions(seed))
    again.policy.load_flat(learner.policy.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    for seed in range(4, 8):
        for each in (learner, again):
            each.learn(make_transitions(seed))
    for name in ("policy", "critics", "value"):
        assert getattr(again, name).hash() == getattr(learner, name).hash()


def test_agent_and_learner_have_the_same_parameters() -> None:
    one, other = (make_agent(), make_learner())
    manifests = [manifest_of(named_tensors(each.module_dict())) for each in (one, other)]
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("field", ["rewards", "obs"])
def test_a_nan_skips_the_update_and_is_counted(field: str) -> None:
    learner, bad = make_learner(), make_transitions()
    before = learner.critics.hash()
    bad[field][2] = math.nan
    assert learner.learn(bad)["skipped"] == 1.0
    assert learner.critics.hash() == before


def test_moments_of_observations_are_learned_by_all_networks() -> None:
    model = {"model": {"hidden_sizes": [8], "normalize_obs": True}}
    learner = IQLLearner(**options(IQL, learner=model))
    batch = make_transitions()
    learner.learn(batch)
    networks: tuple[Any, ...] = (learner.policy, learner.critics, learner.value)
    for network in (*networks, learner.target.module):
        assert torch.allclose(network.normalizer.parts[0].shift, batch.obs.mean(0), atol=1e-4)


def test_an_expectile_of_1_is_refused() -> None:
    words = ("learner_config.algo.expectile=1.0",)
    with pytest.raises(ConfigError, match=r"expectile is 1\.0, expected above 0 and below 1"):
        resolve(read_experiment(None, words, algorithm="iql", env_name="toy:target"))
    IQL.validate_config(Config({"algo": {"expectile": 0.7}}), Config(), Config())
