"""The bonus of random network distillation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from session.errors import ConfigError
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.impala import Impala
from surreal_like.algorithm.ppo import PPO
from surreal_like.dataflow import add_rnd_bonus, experience
from tests.surreal_like.algorithm import unrolls
from tests.surreal_like.algorithm.unrolls import DISCRETE, PAIR, spoil_masked_rows
from tests.surreal_like.dataflow.test_parts import make, rows

RND = {"part": "rnd", "args": {"weight": 0.5}}


def novelty_of(learner: Any) -> Any:
    return learner._kept["rnd"].novelty


def slow_bonus(novelty: Any, obs: torch.Tensor, scale: float) -> list[float]:
    """The bonus by the formula, one observation after the other."""
    found = []
    moments = novelty.normalizer.parts[0]
    for row in obs.double():
        deviation = (moments.variance + 1e-8).sqrt() if moments.count else torch.ones(())
        seen = ((row - moments.mean) / deviation).clamp(-5, 5).float()[None]
        errors = (novelty.predictor(seen) - novelty.target(seen))[0].tolist()
        found.append(sum(each**2 for each in errors) / len(errors) / scale)
    return found


def test_the_bonus_is_that_of_the_formula() -> None:
    learner = make(DQN, RND)
    first, second = rows(0), rows(1)
    novelty = novelty_of(learner)
    before, expected = first.rewards.clone(), slow_bonus(novelty, first.obs_next, 1.0)
    learner.learn(first)
    assert (first.rewards - before).tolist() == pytest.approx([0.5 * x for x in expected], rel=1e-4)
    second.obs_next[0] = 1000.0
    deviation = math.sqrt(torch.tensor(expected).double().var(correction=0) + 1e-8)
    before, expected = second.rewards.clone(), slow_bonus(novelty, second.obs_next, deviation)
    learner.learn(second)
    assert (second.rewards - before).tolist() == pytest.approx(
        [0.5 * x for x in expected], rel=1e-4
    )


def test_unrolls_get_the_bonus_of_the_next_row_where_an_action_was_taken() -> None:
    one, other = make(PPO, RND), make(PPO, RND)
    batch = unrolls.make_batch(DISCRETE)
    spoiled = spoil_masked_rows(unrolls.make_batch(DISCRETE))
    spoiled["obs"] = spoiled.obs.clone()
    spoiled.obs[1:][spoiled.mask == 0] = 77.0
    before = batch.rewards.clone()
    novelty = novelty_of(one)
    here = batch.mask != 0
    expected = slow_bonus(novelty, batch.obs[1:][here], 1.0)
    one.learn(batch)
    added = batch.rewards - before
    assert added[here].tolist() == pytest.approx([0.5 * x for x in expected], rel=1e-4)
    assert not added[~here].any()
    other.learn(spoiled)
    assert torch.equal(spoiled.rewards[here], batch.rewards[here])


def test_the_bonus_falls_where_it_was_given() -> None:
    learner = make(Impala, {"part": "rnd", "args": {"learning_rate": 1e-2}})
    novelty = novelty_of(learner)
    new = torch.full((1, 4), 30.0)
    for seed in range(200):
        learner.learn(unrolls.make_batch(DISCRETE, seed=seed % 3))
    known = unrolls.make_batch(DISCRETE).obs[1]
    assert novelty.errors(known).mean() < 0.1 * novelty.errors(new).mean()
    assert learner.learn(unrolls.make_batch(DISCRETE))["part/rnd/bonus"] < 0.01


def test_a_nest_of_observations_is_taken() -> None:
    learner = make(PPO, RND, obs_spec=PAIR)
    batch = unrolls.make_batch(DISCRETE, PAIR)
    before = batch.rewards.clone()
    learner.learn(batch)
    assert ((batch.rewards - before)[batch.mask != 0] > 0).all()


def test_policy_and_bonus_learn_apart() -> None:
    """Same rewards, same updates: the networks of the part change nothing else."""
    plain, shaped = make(Impala), make(Impala, {"part": "rnd", "args": {"weight": 0.0}})
    target = novelty_of(shaped).target.state_dict()
    kept = {name: value.clone() for name, value in target.items()}
    plain_weights = plain.module_dict()["network"].state_dict()
    plain.module_dict()["network"].load_state_dict(shaped.module_dict()["network"].state_dict())
    for seed in range(3):
        plain.learn(unrolls.make_batch(DISCRETE, seed=seed))
        shaped.learn(unrolls.make_batch(DISCRETE, seed=seed))
    weights = shaped.module_dict()["network"].state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in plain_weights.items())
    assert all(torch.equal(value, target[name]) for name, value in kept.items())
    assert list(shaped.module_dict()) == ["network"]
    assert not any(each.requires_grad for each in novelty_of(shaped).target.parameters())


def test_checkpoints_hold_the_networks() -> None:
    one, other = make(DQN, RND), make(DQN, RND)
    for seed in range(3):
        one.learn(rows(seed))
    states = {name: each.state_dict() for name, each in one.checkpointed().items()}
    assert "rnd" in states
    for name, each in other.checkpointed().items():
        each.load_state_dict(states[name])
    first, second = rows(9), rows(9)
    for batch, learner in ((first, one), (second, other)):
        bonus = learner._kept["rnd"].bonus(batch.obs_next)
        assert float(bonus.sum()) > 0
        batch["bonus"] = bonus
    assert torch.equal(first["bonus"], second["bonus"])


def test_metrics_have_the_name_of_the_part() -> None:
    metrics = make(DQN, RND).learn(rows())
    assert metrics["part/rnd/weight"] == 0.5
    assert metrics["part/rnd/bonus"] > 0
    assert metrics["skipped"] == 0
    weight = {"start": 1.0, "end": 0.0, "steps": 100, "kind": "linear"}
    learner = make(DQN, {"part": "rnd", "args": {"weight": weight}})
    learner.env_steps = 75
    assert learner.learn(rows())["part/rnd/weight"] == pytest.approx(0.25)


def test_a_bonus_that_is_not_finite_makes_a_bad_update() -> None:
    learner = make(DQN, RND)
    batch = rows()
    batch.obs_next[0] = math.nan
    assert learner.learn(batch)["skipped"] == 1
    good = learner.learn(rows())
    assert good["skipped"] == 0
    assert math.isfinite(good["part/rnd/bonus"])


def test_sums_of_several_rewards_get_no_bonus() -> None:
    with pytest.raises(ConfigError, match="n_step is 3: set it to 1"):
        make(DQN, RND, n_step=3)


def test_a_plan_of_ones_own_may_have_the_operator() -> None:
    learner = make(DQN)
    flow = experience(learner).for_each(add_rnd_bonus(learner, weight=1.0))
    assert flow.describe() == "replay -> add_rnd_bonus"
    assert "rnd" in learner._kept


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"part": "rdn"}, "no part 'rdn': did you mean rnd?"),
        ({"part": "rnd", "args": {"wieght": 1}}, "'wieght'; it takes weight, features"),
        ({"part": "rnd", "args": {"features": 0}}, "0 features, expected 1 or more"),
        ({"part": "rnd", "args": {"weight": {"kind": "liner"}}}, "weight of rnd.kind is 'liner'"),
    ],
)
def test_a_wrong_part_is_refused(part: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(PPO, part)
