"""Operators of `learner_config.parts`, and the bonus of random network distillation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from session.errors import ConfigError
from surreal_like.addons.gradients.a3c import A3C
from surreal_like.algorithm.base import Algorithm
from surreal_like.algorithm.dqn import DQN, DQNLearner
from surreal_like.algorithm.impala import Impala
from surreal_like.algorithm.ppo import PPO
from surreal_like.algorithm.r2d2 import R2D2Learner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Operator, add_rnd_bonus, experience
from surreal_like.learner.base import Learner
from tests.surreal_like.algorithm import test_r2d2, transitions, unrolls
from tests.surreal_like.algorithm.unrolls import DISCRETE, PAIR, spoil_masked_rows

HERE = "tests.surreal_like.dataflow.test_parts"
RND = {"part": "rnd", "args": {"weight": 0.5}}


def doubled(learner: Learner, *, factor: float = 2.0) -> Operator:
    """A part of one's own: it multiplies rewards."""

    def multiply(batch: Batch) -> Batch:
        batch["rewards"] = batch.rewards * factor
        return batch

    return Operator(f"doubled({factor:g})", multiply)


def skipping(learner: Learner, share: float) -> Operator:
    def skip(batch: Batch) -> Batch:
        learner.add_metrics({"skipped": share})
        return batch

    return Operator("skipping", skip)


def raw(learner: Learner) -> str:
    return "no operator"


def unbuilt(
    algorithm: type[Algorithm], *parts: Any, learner: type[Learner] | None = None, **changed: Any
) -> Any:
    """A learner whose plan is not built yet."""
    torch.manual_seed(0)
    if algorithm is DQN:
        changed = {"n_step": 1, **changed}
    configs = unrolls.configs(algorithm, learner={"parts": list(parts)}, **changed)
    return (learner or algorithm.learner)(**configs)


def make(algorithm: type[Algorithm], *parts: Any, **changed: Any) -> Any:
    learner = unbuilt(algorithm, *parts, **changed)
    learner.flow.counts()
    return learner


def novelty_of(learner: Any) -> Any:
    return learner._kept["rnd"].novelty


def rows(seed: int = 0) -> Batch:
    batch = transitions.make_transitions(seed)
    batch["actions"] = torch.randint(0, 3, batch.rewards.shape)
    return batch


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


def test_parts_stand_behind_the_source_in_order() -> None:
    own = {"part": f"{HERE}:doubled", "args": {"factor": 3.0}}
    learner = make(PPO, own, RND)
    assert learner.flow.describe().startswith(
        "rollouts -> doubled(3) -> add_rnd_bonus -> compute_advantages"
    )
    assert make(DQN, own).flow.describe().startswith("replay -> doubled(3) -> train_one_step")
    assert make(PPO).flow.describe().startswith("rollouts -> compute_advantages")


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


def test_sequences_get_the_bonus_at_the_transitions_that_are_learned() -> None:
    """C1."""
    agent, _ = test_r2d2.pair()
    batch, _ = test_r2d2.sequences(test_r2d2.acted(agent)[0])
    given = test_r2d2.options()
    given["learner_config"]["parts"] = [RND]
    learner = R2D2Learner(**given)
    learner.flow.counts()
    before, here = batch.rewards.clone(), batch.mask != 0
    expected = slow_bonus(novelty_of(learner), batch.obs[1:][here], 1.0)
    learner.learn(batch)
    added = batch.rewards - before
    assert added[here].tolist() == pytest.approx([0.5 * x for x in expected], rel=1e-3, abs=1e-6)
    assert not added[~here].any()


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


def test_a_bad_part_makes_a_bad_update_and_a_good_one_hides_none() -> None:
    bad, good = ({"part": f"{HERE}:skipping", "args": {"share": x}} for x in (1.0, 0.0))
    assert make(DQN, bad).learn(rows())["skipped"] == 1
    assert make(DQN, good).learn(rows())["skipped"] == 0
    batch = rows()
    batch.rewards[0] = math.nan
    assert make(DQN, good).learn(batch)["skipped"] == 1


def test_a_batch_that_a_script_learns_from_is_changed_once() -> None:
    """The source that is built first has the parts, also where a class calls its inherited plan."""

    class Own(DQNLearner):
        def learn(self, batch: Batch) -> Any:
            return super().learn(batch)

    part = {"part": f"{HERE}:doubled"}
    learner = unbuilt(DQN, part, learner=Own)
    batch = rows()
    before = batch.rewards.clone()
    learner.feed(batch, learner.flow)
    assert torch.equal(batch.rewards, 2 * before)
    learner = unbuilt(DQN, part)
    assert "doubled(2)" in experience(learner).describe()
    assert "doubled" not in learner.flow.describe()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("rnd", "has 'rnd', expected {part: NAME"),
        ({"args": {}}, "expected {part: NAME"),
        ({"part": "rnd", "arg": {}}, "expected {part: NAME"),
        ({"part": "rnd", "args": [1]}, "expected {part: NAME"),
        ({"part": 3}, "expected {part: NAME"),
        ({"part": "rdn"}, "no part 'rdn': did you mean rnd?"),
        ({"part": "no.such:part"}, "'no.such:part' cannot be imported: No module named 'no'"),
        ({"part": f"{HERE}:nothing"}, "test_parts has no 'nothing'"),
        ({"part": f"{HERE}:RND"}, "RND' is a dict, expected a class or function"),
        ({"part": f"{HERE}:raw"}, "gives a str, expected an Operator"),
        ({"part": "rnd", "args": {"wieght": 1}}, "'wieght'; it takes weight, features"),
        ({"part": "rnd", "args": {"features": 0}}, "0 features, expected 1 or more"),
        ({"part": "rnd", "args": {"weight": {"kind": "liner"}}}, "weight of rnd.kind is 'liner'"),
    ],
)
def test_a_wrong_part_is_refused(part: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(PPO, part)


def test_a_part_that_stands_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="has rnd twice"):
        make(PPO, RND, RND)


def test_sums_of_several_rewards_get_no_bonus() -> None:
    with pytest.raises(ConfigError, match="n_step is 3: set it to 1"):
        make(DQN, RND, n_step=3)


def test_gradients_of_agents_have_no_parts() -> None:
    with pytest.raises(ConfigError, match="agents make the gradients"):
        make(A3C, RND)


def test_a_plan_of_ones_own_may_have_the_operator() -> None:
    learner = make(DQN)
    flow = experience(learner).for_each(add_rnd_bonus(learner, weight=1.0))
    assert flow.describe() == "replay -> add_rnd_bonus"
    assert "rnd" in learner._kept
