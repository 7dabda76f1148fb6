"""IMPALA: the update is the formula, off-policy rows are weighted, toys are solved."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like.addons.scripts.policy import load_policy
from surreal_like.algorithm.impala import Impala, ImpalaAgent, ImpalaLearner
from surreal_like.data.batch import Batch
from surreal_like.env.toy import Chain, Clock
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm import test_ppo
from tests.surreal_like.algorithm.unrolls import (
    ACTIONS,
    BOX,
    DISCRETE,
    GAMMA,
    PAIR,
    SMALL,
    B,
    T,
    configs,
    constant,
    make_batch,
    play,
    spoil_masked_rows,
)


def make_learner(action_spec: Any = None, **changed: Any) -> ImpalaLearner:
    torch.manual_seed(0)
    return ImpalaLearner(**configs(Impala, action_spec, **changed))


def slow_stream(
    learner: ImpalaLearner, batch: Batch, b: int, values: Any, log_rhos: Any
) -> tuple[Any, Any]:
    """Targets and advantages of one stream, from its end to its beginning."""
    algo = learner.algo
    limits = [algo[key] or math.inf for key in ("clip_rho", "clip_c", "clip_pg_rho")]
    targets, advantages = np.zeros(T + 1), np.zeros(T)
    targets[T] = values[T]
    for t in reversed(range(T)):
        targets[t] = values[t]
        if not batch.mask[t, b]:
            continue
        rho, c, pg = (min(math.exp(log_rhos[t]), limit) for limit in limits)
        discount, reward = batch.discounts[t, b].item(), batch.rewards[t, b].item()
        delta = rho * (reward + discount * values[t + 1] - values[t])
        later = discount * algo.vtrace_lambda * c * (targets[t + 1] - values[t + 1])
        targets[t] = values[t] + delta + later
        advantages[t] = pg * (reward + discount * targets[t + 1] - values[t])
    return targets[:T], advantages


@torch.no_grad()
def slow_losses(learner: ImpalaLearner, batch: Batch) -> dict[str, float]:
    head = learner.network.head
    policy_loss, value_loss, entropy, count = 0.0, 0.0, 0.0, 0
    for b in range(B):
        policy, values = learner.network(batch.obs[:, b])
        acted = head.of({name: column[:, b] for name, column in batch.extras.items()})
        here = head.of({name: column[:T] for name, column in policy.columns().items()})
        log_prob = here.log_prob(batch.actions[:, b])
        log_rhos = (log_prob - acted.log_prob(batch.actions[:, b])).tolist()
        targets, advantages = slow_stream(learner, batch, b, values.tolist(), log_rhos)
        for t in range(T):
            if batch.mask[t, b]:
                count += 1
                policy_loss -= log_prob[t].item() * advantages[t]
                value_loss += 0.5 * (targets[t] - values[t].item()) ** 2
                entropy += here.entropy()[t].item()
    return {
        "policy_loss": policy_loss / count,
        "value_loss": value_loss / count,
        "entropy": entropy / count,
    }


@pytest.mark.parametrize("action_spec", [DISCRETE, BOX])
@pytest.mark.parametrize(
    "algo",
    [
        {},
        {"clip_rho": 0.0, "clip_pg_rho": 0.0, "entropy": constant(0.3)},
        {"vtrace_lambda": 0.5, "clip_c": 0.7, "clip_rho": 2.0, "clip_pg_rho": 1.5},
        {"value_weight": 2.0},
    ],
)
def test_the_loss_is_the_formula(action_spec: Any, algo: dict[str, Any]) -> None:
    learner = make_learner(action_spec, **algo)
    batch = make_batch(action_spec)
    expected = slow_losses(learner, batch)
    weight = algo.get("entropy", constant(0.01))["start"]
    expected["loss"] = (
        expected["policy_loss"]
        + learner.algo.value_weight * expected["value_loss"]
        - weight * expected["entropy"]
    )
    metrics = learner.learn(batch)
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_each_pass_computes_targets_anew() -> None:
    one, several = make_learner(), make_learner(num_sgd_iter=3)
    batch, same = make_batch(DISCRETE), make_batch(DISCRETE)
    steps = [one.learn(batch) for _ in range(3)]
    metrics = several.learn(same)
    assert one.network.hash() == several.network.hash()
    for name in ("policy_loss", "value_loss", "rho", "entropy"):
        mean = sum(float(each[name]) for each in steps) / 3
        assert float(metrics[name]) == pytest.approx(mean, rel=1e-5), name
    assert torch.equal(batch.value_targets, same.value_targets)


NORMALIZED = {"model": {**SMALL, "normalize_values": True}}


def test_normalized_values_are_learned_from_real_targets() -> None:
    plain, learner = make_learner(), make_learner(learner=NORMALIZED)
    batch = make_batch(DISCRETE)
    batch["rewards"] = 100.0 + 1000.0 * batch["rewards"]
    first = [each.learn(batch) for each in (plain, learner)]
    # Nothing was known before the first update; it is counted behind it.
    assert float(first[1]["value_loss"]) == pytest.approx(float(first[0]["value_loss"]))
    assert first[1]["value_mean"] == 0.0
    targets = batch.value_targets[batch.mask != 0]
    second = learner.learn(batch)
    assert second["value_mean"] == pytest.approx(float(targets.mean()), rel=1e-5)
    deviation = float(targets.std(correction=0))
    assert second["value_deviation"] == pytest.approx(deviation, rel=1e-5)
    ratio = float(plain.learn(batch)["value_loss"]) / float(second["value_loss"])
    assert ratio == pytest.approx(deviation**2, rel=0.1)


def test_large_values_are_learned_if_they_are_normalized() -> None:
    batch = make_batch(DISCRETE)
    batch["rewards"] = 1e3 * batch["rewards"]
    batch["discounts"] = torch.zeros(T, B)
    batch.extras["logits"].zero_()
    known = []
    for model in (SMALL, NORMALIZED["model"]):
        learner = make_learner(learner={"model": model}, learning_rate=constant(3e-3))
        known.append([float(learner.learn(batch)["explained_variance"]) for _ in range(100)][-1])
    assert known[0] < 0.1 < 0.5 < known[1]


@pytest.mark.parametrize("policy", ["beta", "squashed_gaussian"])
def test_bounded_actions_are_learned_from(policy: str) -> None:
    spec = {**BOX, "low": -2.0, "high": 4.0}
    options: dict[str, Any] = {"learner": {"model": {**SMALL, "policy": policy}}}
    agent = ImpalaAgent(**configs(Impala, spec, **options), agent_id=0, agent_mode="training")
    learner = make_learner(spec, **options)
    agent.network.load_flat(learner.network.read_flat())
    batch = make_batch(spec)
    drawn = [agent.act(batch.obs[t]) for t in range(T)]
    batch["actions"] = torch.from_numpy(np.stack([actions for actions, _ in drawn]))
    batch["extras"] = {
        name: torch.from_numpy(np.stack([extras[name] for _, extras in drawn]))
        for name in drawn[0][1]
    }
    metrics = learner.learn(batch)
    assert float(metrics["rho"]) == pytest.approx(1.0, abs=1e-4)
    assert metrics["nan_updates"] == 0


@pytest.mark.parametrize("action_spec", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("obs_spec", [None, PAIR])
def test_good_actions_become_likelier(action_spec: Any, obs_spec: Any) -> None:
    algo = {"learning_rate": constant(3e-3), "value_weight": 0.0, "max_grad_norm": 0.0}
    learner = make_learner(action_spec, obs_spec=obs_spec, **algo)
    batch = make_batch(action_spec, obs_spec)
    batch["discounts"] = torch.zeros(T, B)
    batch["rewards"] = torch.full((T, B), 5.0)

    def log_rho() -> float:
        metrics = learner.learn(batch)
        return math.log(float(metrics["rho"]))

    before = log_rho()
    for _ in range(10):
        after = log_rho()
    assert after > before + 0.01


@pytest.mark.parametrize("action_spec", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("make", [make_learner, test_ppo.make_learner], ids=["impala", "ppo"])
def test_rows_that_nothing_was_done_at_change_nothing(make: Any, action_spec: Any) -> None:
    one, other = make(action_spec), make(action_spec)
    one.learn(make_batch(action_spec))
    other.learn(spoil_masked_rows(make_batch(action_spec)))
    assert one.network.hash() == other.network.hash()


@pytest.mark.parametrize("rule", ["adam", "rmsprop_tf"])
def test_a_restored_learner_goes_on_as_if_nothing_had_been(rule: str) -> None:
    options = {"optimizer": {"rule": rule, "epsilon": 0.1}}
    learner = make_learner(**options)
    batches = [make_batch(DISCRETE, seed=seed) for seed in range(6)]
    for batch in batches[:3]:
        learner.learn(batch)
    again = make_learner(**options)
    again.network.load_flat(learner.network.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    for batch in batches[3:]:
        learner.learn(batch)
        again.learn(batch)
    assert learner.network.hash() == again.network.hash()


def test_schedules_go_by_the_steps_of_the_whole_run() -> None:
    falling = {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": 1000}
    learner = make_learner(learning_rate=falling, entropy={**falling, "start": 0.5})
    learner.env_steps = 1000
    before = learner.network.hash()
    metrics = learner.learn(make_batch(DISCRETE))
    assert metrics["learning_rate"] == metrics["entropy_weight"] == 0.0
    assert learner.network.hash() == before
    learner.env_steps = 500
    assert learner.learn(make_batch(DISCRETE))["entropy_weight"] == 0.25


def test_a_nan_skips_the_update_and_is_counted() -> None:
    learner = make_learner()
    before = learner.network.hash()
    bad = make_batch(DISCRETE)
    bad["rewards"][1, 1] = math.nan
    metrics = learner.learn(bad)
    assert (metrics["skipped"], metrics["nan_updates"]) == (1.0, 1)
    assert learner.network.hash() == before


def test_agent_and_learner_have_the_same_parameters() -> None:
    agent = ImpalaAgent(**configs(Impala), agent_id=0, agent_mode="training")
    manifests = [manifest_of(named_tensors(x.module_dict())) for x in (agent, make_learner())]
    assert manifests[0] == manifests[1]
    actions, extras = agent.act(torch.randn(6, 4))
    assert actions.shape == (6,)
    assert extras["logits"].shape == (6, 3)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="'sgd', expected one of adam, radam, rmsprop_tf"):
        make_learner(optimizer={"rule": "sgd"})


RATE = {"learner_config__algo__learning_rate__start": 1e-2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env_steps", "rate"), [("impala", 12_000, RATE), ("ppo", 6000, test_ppo.RATE)]
)
def test_chain_is_solved(tmp_path: Path, name: str, env_steps: int, rate: dict[str, float]) -> None:
    run = play(tmp_path / "run", name, "toy:chain", env_steps=env_steps, **rate)
    assert run.result["best_eval"]["mean_return"] == pytest.approx(Chain().optimal_return)
    assert run.progress()[-1]["train"]["mean_return_100"] > 0.5


@pytest.mark.slow
def test_a_time_limit_is_bootstrapped(tmp_path: Path) -> None:
    words: dict[str, Any] = {**RATE, "learner_config__algo__gamma": GAMMA}
    run = play(tmp_path / "run", "impala", "toy:clock", env_steps=20_000, **words)
    assert run.result["best_eval"]["mean_return"] == Clock().optimal_return
    policy: Any = load_policy(tmp_path / "run", "latest")
    running = policy._agents[True].network(torch.tensor([[0.0, 1.0]]))[1].item()
    assert running == pytest.approx(1.0 / (1.0 - GAMMA), abs=1.0)
