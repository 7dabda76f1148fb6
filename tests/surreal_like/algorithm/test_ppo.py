"""PPO: the update is the formula, the options change what they say, toys are solved."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like.addons.scripts.policy import load_policy
from surreal_like.algorithm.on_policy import explained_variance
from surreal_like.algorithm.ppo import PPO, PPOAgent, PPOLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss, compute_advantages
from surreal_like.dataflow.batches import flat_actions, parts_of, rows_of
from surreal_like.env.toy import Clock
from surreal_like.learner.target import KLPenalty
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm.unrolls import (
    ACTIONS,
    BOX,
    DISCRETE,
    GAMMA,
    PAIR,
    SMALL,
    TABLE,
    B,
    T,
    configs,
    constant,
    make_batch,
    make_obs,
    play,
    prepare,
)

ONCE = {"num_sgd_iter": 1, "minibatches": 1}


def make_learner(action_spec: Any = None, **changed: Any) -> PPOLearner:
    torch.manual_seed(0)
    return PPOLearner(**configs(PPO, action_spec, **changed))


def make_agent(action_spec: Any = None, mode: str = "training", **changed: Any) -> PPOAgent:
    torch.manual_seed(0)
    return PPOAgent(**configs(PPO, action_spec, **changed), agent_id=0, agent_mode=mode)


def slow_advantages(learner: PPOLearner, batch: Batch, lambda_: float) -> Any:
    """Advantages `[T, B]`, row by row."""
    with torch.no_grad():
        values = [
            [learner.network(batch.obs[t, b : b + 1])[1].item() for b in range(B)]
            for t in range(T + 1)
        ]
    advantages = [[0.0] * B for _ in range(T)]
    for b in range(B):
        after = 0.0
        for t in reversed(range(T)):
            if not batch.mask[t, b]:
                after = 0.0
                continue
            discount = batch.discounts[t, b].item()
            delta = batch.rewards[t, b].item() + discount * values[t + 1][b] - values[t][b]
            after = delta + discount * lambda_ * after
            advantages[t][b] = after
    return np.array(advantages)


def slow_log_prob(columns: dict[str, torch.Tensor], action: torch.Tensor) -> float:
    if "logits" in columns:
        logits: list[float] = columns["logits"].tolist()
        return logits[int(action)] - math.log(sum(math.exp(x) for x in logits))
    total = 0.0
    triples = zip(columns["mean"], columns["log_std"], action.flatten(), strict=True)
    for mean, log_std, x in triples:
        z = (x.item() - mean.item()) / math.exp(log_std.item())
        total += -0.5 * z * z - log_std.item() - 0.5 * math.log(2 * math.pi)
    return total


def slow_kl(old: dict[str, torch.Tensor], new: dict[str, torch.Tensor]) -> float:
    if "logits" in old:
        p, q = (each["logits"].softmax(-1).tolist() for each in (old, new))
        return math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
    total = 0.0
    for i in range(len(old["mean"])):
        m, s = old["mean"][i].item(), math.exp(old["log_std"][i].item())
        n, r = new["mean"][i].item(), math.exp(new["log_std"][i].item())
        total += math.log(r / s) + (s * s + (m - n) ** 2) / (2 * r * r) - 0.5
    return total


def slow_loss(learner: PPOLearner, batch: Batch, coefficient: float) -> dict[str, float]:
    """What one update over the whole batch minimises, as the papers write it."""
    algo = learner.algo
    advantages = slow_advantages(learner, batch, algo.gae_lambda)
    rows = [(t, b) for t in range(T) for b in range(B) if batch.mask[t, b]]
    kept = np.array([advantages[row] for row in rows])
    policy_losses, value_losses, kls = [], [], []
    for (t, b), advantage in zip(rows, (kept - kept.mean()) / kept.std(), strict=True):
        with torch.no_grad():
            policy, _ = learner.network(batch.obs[t, b : b + 1])
        new = {name: column[0] for name, column in policy.columns().items()}
        old = {name: column[t, b] for name, column in batch.extras.items()}
        action = batch.actions[t, b]
        ratio = math.exp(slow_log_prob(new, action) - slow_log_prob(old, action))
        clip = algo.clip.start
        limited = min(max(ratio, 1 - clip), 1 + clip) if clip else ratio
        policy_losses.append(-min(ratio * advantage, limited * advantage))
        # Before the first update the value is the old one, so its clip does nothing.
        value_losses.append(0.5 * advantages[t, b] ** 2)
        kls.append(slow_kl(old, new))
    policy_loss, value_loss = np.mean(policy_losses), np.mean(value_losses)
    loss = policy_loss + algo.value_weight * value_loss + coefficient * np.mean(kls)
    return {"policy_loss": policy_loss, "value_loss": value_loss, "loss": loss}


@pytest.mark.parametrize("action_spec", [DISCRETE, BOX])
@pytest.mark.parametrize(
    "algo", [{}, {"clip": 0.0, "kl": {"coefficient": 0.7}}, {"value_clip": 0.3, "gae_lambda": 0.5}]
)
def test_the_loss_is_the_formula(action_spec: Any, algo: dict[str, Any]) -> None:
    learner = make_learner(action_spec, **ONCE, **algo)
    batch = make_batch(action_spec)
    expected = slow_loss(learner, batch, algo.get("kl", {}).get("coefficient", 0.0))
    metrics = learner.learn(batch)
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_entropy_is_rewarded_as_much_as_its_weight_says() -> None:
    plain, curious = make_learner(**ONCE), make_learner(**ONCE, entropy=constant(0.5))
    one, other = plain.learn(make_batch(DISCRETE)), curious.learn(make_batch(DISCRETE))
    expected = float(one["loss"]) - 0.5 * float(one["entropy"])
    assert float(other["loss"]) == pytest.approx(expected, rel=1e-4)
    assert other["entropy_weight"] == 0.5


@pytest.mark.parametrize("action_spec", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("obs_spec", [None, PAIR])
@pytest.mark.parametrize("shared", [False, True])
def test_good_actions_become_likelier(action_spec: Any, obs_spec: Any, shared: bool) -> None:
    model = {"hidden_sizes": [16], "shared": shared}
    learner = make_learner(
        action_spec,
        obs_spec=obs_spec,
        learner={"model": model},
        learning_rate=constant(3e-3),
        normalize_advantages=False,
        gae_lambda=0.0,
        value_weight=0.0,
    )
    batch = make_batch(action_spec, obs_spec)
    batch["discounts"] = torch.zeros(T, B)
    batch["rewards"] = torch.full((T, B), 5.0)
    # Acted with the policy that learns, so the first ratios are 1.
    rows = prepare(learner, batch)
    with torch.no_grad():
        policy, _ = learner.network(rows.obs)
        before = policy.log_prob(flat_actions(rows.actions, 1)).mean()
    flat_rows = batch.mask.flatten().nonzero().squeeze(1)
    for name, column in policy.columns().items():
        batch.extras[name].flatten(0, 1)[flat_rows] = column
    for _ in range(5):
        learner.learn(batch)
    with torch.no_grad():
        assert (
            learner.network(rows.obs)[0].log_prob(flat_actions(rows.actions, 1)).mean()
            > before + 0.02
        )


def test_a_pass_uses_each_row_once() -> None:
    learner = make_learner(minibatches=3)
    rows = prepare(learner, make_batch(DISCRETE))
    parts = [part for _, part in parts_of(rows, 3, learner.generator)]
    assert [len(part.mask) for part in parts] == [6, 6, 6]
    seen = torch.cat([part.advantages for part in parts])
    assert not torch.equal(seen, rows.advantages)
    assert torch.equal(seen.sort().values, rows.advantages.sort().values)


def test_advantages_are_normalised_over_the_rows_that_count() -> None:
    rows = prepare(make_learner(), make_batch(DISCRETE))
    assert len(rows.mask) == T * B - 2
    assert float(rows.advantages.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(rows.advantages.std(correction=0)) == pytest.approx(1.0, abs=1e-5)


def test_a_long_update_gives_signs_of_life() -> None:
    learner, pulses = make_learner(minibatches=3, num_sgd_iter=2), []
    link = SimpleNamespace(pulse=lambda: pulses.append(1))
    learner._link = link  # type: ignore[assignment]
    learner.learn(make_batch(DISCRETE))
    assert len(pulses) == 6


@pytest.mark.parametrize(
    ("stop", "kl", "ends"),
    [(0.02, 0.019, False), (0.02, 0.021, True), (0.5, 0.4, False), (0.5, 0.6, True), (0, 9, False)],
)
def test_the_divergence_that_ends_the_passes_is_the_given_number(
    stop: float, kl: float, ends: bool
) -> None:
    assert make_learner(kl={"stop": stop}).far_enough({"kl": kl}) is ends


def test_passes_end_where_the_policy_has_gone_far_enough() -> None:
    fast = {"learning_rate": constant(0.05), "num_sgd_iter": 10}
    assert make_learner(**fast).learn(make_batch(DISCRETE))["passes"] == 10.0
    stopped = make_learner(**fast, kl={"stop": 1e-6}).learn(make_batch(DISCRETE))
    assert stopped["passes"] == 1.0


def test_the_weight_of_the_penalty_follows_the_divergence() -> None:
    low = make_learner(kl={"coefficient": 1.0, "target": 1e-9}, learning_rate=constant(0.01))
    assert low.learn(make_batch(DISCRETE))["kl_coefficient"] == 2.0
    high = make_learner(kl={"coefficient": 1.0, "target": 100.0})
    assert high.learn(make_batch(DISCRETE))["kl_coefficient"] == 0.5
    none = make_learner(kl={"target": 1e-9})
    assert none.learn(make_batch(DISCRETE))["kl_coefficient"] == 0.0


def rates(learner: PPOLearner, updates: int) -> list[float]:
    """Step sizes of the updates."""
    return [learner.learn(make_batch(DISCRETE))["learning_rate"] for _ in range(updates)]


def test_the_step_size_follows_the_divergence_if_it_is_to() -> None:
    falling = make_learner(adaptive_learning_rate={"kl": 1e-9, "low": 1e-4})
    assert rates(falling, 5) == pytest.approx([3e-4, 2e-4, 4e-4 / 3, 1e-4, 1e-4])
    rising = make_learner(adaptive_learning_rate={"kl": 100.0}, **ONCE)
    assert rates(rising, 3) == pytest.approx([3e-4, 4.5e-4, 6.75e-4])
    assert rates(make_learner(), 3) == [3e-4] * 3


NORMALIZED = {"model": {"hidden_sizes": [8], "normalize_values": True}}


def test_normalized_values_have_errors_in_units_of_their_deviation() -> None:
    plain, learner = make_learner(**ONCE), make_learner(**ONCE, learner=NORMALIZED)
    batch = make_batch(DISCRETE)
    batch["rewards"] = 100.0 + 1000.0 * batch["rewards"]
    plain_metrics, metrics = plain.learn(batch), learner.learn(batch)
    rows = rows_of(batch)
    targets = rows.value_targets
    assert metrics["value_mean"] == pytest.approx(float(targets.mean()), rel=1e-5)
    deviation = float(targets.std(correction=0))
    assert metrics["value_deviation"] == pytest.approx(deviation, rel=1e-5)
    expected = plain_metrics["value_loss"] / deviation**2
    assert float(metrics["value_loss"]) == pytest.approx(float(expected), rel=1e-4)
    assert "value_mean" not in plain_metrics


@pytest.mark.slow
def test_large_values_are_learned_if_they_are_normalized() -> None:
    batch = make_batch(DISCRETE)
    batch["rewards"] = 1e4 + 1e3 * batch["rewards"]
    known = []
    for model in (SMALL, NORMALIZED["model"]):
        learner = make_learner(learner={"model": model}, learning_rate=constant(3e-3))
        known.append([learner.learn(batch)["explained_variance"] for _ in range(30)][-1])
    assert known[0] < 0.1 < 0.5 < known[1]


def test_a_clip_of_normalized_values_is_in_units_of_their_deviation() -> None:
    batch = make_batch(DISCRETE)
    batch["rewards"] = 1e3 * batch["rewards"]
    losses = []
    for clip in (0.0, 0.01, 50.0):
        learner = make_learner(learner=NORMALIZED, learning_rate=constant(0.01), value_clip=clip)
        losses.append(float(learner.learn(batch)["value_loss"]))
    assert losses[0] == losses[2] != losses[1]


def test_schedules_go_by_the_steps_of_the_whole_run() -> None:
    falling = {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": 1000}
    learner = make_learner(learning_rate=falling, entropy={**falling, "start": 0.5})
    learner.env_steps = 750
    metrics = learner.learn(make_batch(DISCRETE))
    assert metrics["learning_rate"] == pytest.approx(2.5e-4)
    assert metrics["entropy_weight"] == pytest.approx(0.125)
    learner.env_steps = 1000
    before = learner.network.hash()
    learner.learn(make_batch(DISCRETE))
    assert learner.network.hash() == before


def test_a_clip_that_falls_to_0_stays_a_clip_and_a_constant_0_is_none() -> None:
    falling = {"kind": "linear", "start": 0.3, "end": 0.0, "steps": 1000}
    made = {"clip": falling, "learning_rate": constant(0.05), "kl": {"stop": 0.0}}
    found = []
    for steps in (0, 500, 1000):
        learner = make_learner(**made)
        learner.env_steps = steps
        metrics = learner.learn(make_batch(DISCRETE))
        assert metrics["clip"] == pytest.approx(0.3 * (1 - steps / 1000))
        rows = prepare(learner, make_batch(DISCRETE))
        found.append(float(learner.loss(rows).metrics["clip_fraction"]))
        expected = make_learner(**{**made, "clip": constant(0.3 * (1 - steps / 1000) or 1e-9)})
        expected.learn(make_batch(DISCRETE))
        mine, theirs = (each.network.read_flat() for each in (learner, expected))
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert found[0] < found[1] < found[2] == 1.0
    assert not make_learner(clip=0.0).clips


def test_advantages_may_be_normalized_per_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(normalize_advantages_per="minibatch", minibatches=3)
    assert "4 x 3, standardize(advantages))" in learner.flow.describe()
    seen: list[torch.Tensor] = []
    loss = learner.loss

    def see(part: Batch) -> Loss:
        seen.append(part.advantages)
        return loss(part)

    monkeypatch.setattr(learner, "loss", see)
    batch = make_batch(DISCRETE)
    learner.learn(batch)
    assert [len(each) for each in seen] == [6] * 12
    for each in seen:
        assert float(each.mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(each.std()) == pytest.approx(1.0, abs=1e-5)
    kept = rows_of(batch).advantages
    assert float(kept.std()) != pytest.approx(1.0, abs=1e-2)
    off = make_learner(normalize_advantages_per="minibatch", normalize_advantages=False)
    assert "standardize" not in off.flow.describe()


@pytest.mark.parametrize(("value_weight", "halved"), [(1.0, 1.0), (0.5, 0.5)])
def test_the_loss_is_that_of_stable_baselines3_and_of_cleanrl(
    value_weight: float, halved: float
) -> None:
    """Their vf_coef is 0.5; CleanRL halves the squares, stable-baselines3 does not."""
    learner = make_learner(
        **ONCE,
        normalize_advantages_per="minibatch",
        entropy=constant(0.01),
        value_weight=value_weight,
    )
    batch = make_batch(DISCRETE)
    compute_advantages(learner, learner.algo.gae_lambda)(batch)
    rows = rows_of(batch)
    with torch.no_grad():
        policy, values = learner.network(rows.obs)
    log_probs = policy.columns()["logits"].log_softmax(-1)
    log_prob = log_probs.gather(1, rows.actions[:, None])[:, 0]
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    advantages = (rows.advantages - rows.advantages.mean()) / (rows.advantages.std() + 1e-8)
    ratio = (log_prob - rows.log_probs).exp()
    gains = torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))
    squares = torch.nn.functional.mse_loss(rows.value_targets, values)
    theirs = -gains.mean() - 0.01 * entropy + 0.5 * halved * squares
    assert float(learner.learn(batch)["loss"]) == pytest.approx(float(theirs), rel=1e-5)


def idle_batch(spec: Any = None) -> Batch:
    """Unrolls of which no row has an action."""
    batch = make_batch(DISCRETE, spec)
    batch["mask"] = torch.zeros(T, B)
    return batch


@pytest.mark.parametrize("per", ["batch", "minibatch"])
@pytest.mark.parametrize("spec", [None, PAIR])
def test_a_batch_in_which_nothing_was_done_teaches_nothing(per: str, spec: Any) -> None:
    learner = make_learner(obs_spec=spec, normalize_advantages_per=per)
    before = learner.network.hash()
    metrics = learner.learn(idle_batch(spec))
    assert (float(metrics["loss"]), metrics["skipped"]) == (0.0, 0.0)
    assert learner.network.hash() == before
    learner.learn(make_batch(DISCRETE, spec))
    learner.learn(idle_batch(spec))
    assert np.isfinite(learner.network.read_flat()).all()


def test_a_batch_in_which_nothing_was_done_adapts_nothing() -> None:
    learner = make_learner(
        kl={"coefficient": 1.0},
        adaptive_learning_rate={"kl": 0.01},
        entropy=constant(0.01),
        entropy_target={"value": 0.5},
    )
    metrics = learner.learn(idle_batch())
    assert metrics["kl_coefficient"] == 1.0
    assert learner.adaptive_step is not None
    assert learner.adaptive_step.value == 3e-4
    assert learner.entropy.at(learner) == 0.01


@pytest.mark.parametrize("field", ["rewards", "obs"])
def test_a_nan_skips_the_update_and_is_counted(field: str) -> None:
    learner = make_learner()
    before = learner.network.hash()
    bad = make_batch(DISCRETE)
    bad[field][1, 1] = math.nan
    metrics = learner.learn(bad)
    assert metrics["skipped"] == 1.0
    assert metrics["nan_updates"] == 16
    assert learner.network.hash() == before
    assert learner.learn(make_batch(DISCRETE))["skipped"] == 0.0


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"adaptive_learning_rate": {"kl": 1e-9}},
        {"learner": {"model": {"hidden_sizes": [8], "normalize_values": True}}},
    ],
)
def test_a_restored_learner_goes_on_as_if_nothing_had_been(changed: dict[str, Any]) -> None:
    options: dict[str, Any] = {"kl": {"coefficient": 1.0}, **ONCE, **changed}
    learner = make_learner(**options)
    batches = [make_batch(DISCRETE, seed=seed) for seed in range(6)]
    for batch in batches[:3]:
        learner.learn(batch)
    again = make_learner(**options)
    again.network.load_flat(learner.network.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    assert again.kl_penalty.coefficient == learner.kl_penalty.coefficient != 1.0
    for batch in batches[3:]:
        learner.learn(batch)
        again.learn(batch)
    mine, theirs = (named_tensors(each.network) for each in (learner, again))
    for name, tensor in mine.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-6)


@pytest.mark.parametrize("action_spec", ACTIONS.values(), ids=ACTIONS)
def test_agent_and_learner_have_the_same_parameters(action_spec: Any) -> None:
    agent, learner = make_agent(action_spec), make_learner(action_spec)
    manifests = [manifest_of(named_tensors(each.module_dict())) for each in (agent, learner)]
    assert manifests[0] == manifests[1]


BOUNDED = {**TABLE, "low": -2.0, "high": 4.0}


@pytest.mark.parametrize(
    ("policy", "columns"), [("beta", {"alpha", "beta"}), ("squashed_gaussian", {"mean", "log_std"})]
)
def test_bounded_actions_are_scaled_and_learned_from(policy: str, columns: set[str]) -> None:
    model = {"model": {**SMALL, "policy": policy}}
    options: dict[str, Any] = {"learner": model, "normalize_advantages": False}
    agent, learner = make_agent(BOUNDED, **options), make_learner(BOUNDED, **options)
    actions, extras = agent.act(make_obs(None, 500))
    assert actions.shape == (500, 2, 3)
    assert -2.0 <= actions.min() < -1.0 < 3.0 < actions.max() <= 4.0
    assert set(extras) == columns
    batch = make_batch(BOUNDED)
    batch["extras"], batch["actions"] = {}, torch.zeros(T, B, 2, 3)
    drawn = [agent.act(batch.obs[t]) for t in range(T)]
    batch["actions"] = torch.from_numpy(np.stack([each[0] for each in drawn]))
    for name in columns:
        batch.extras[name] = torch.from_numpy(np.stack([each[1][name] for each in drawn]))
    metrics = learner.learn(batch)
    # The policy that acted is the one that learns, so the first ratios are 1.
    assert 0.0 <= float(metrics["kl"]) < 0.05
    assert metrics["nan_updates"] == 0
    evaluating = make_agent(BOUNDED, mode="eval_deterministic", **options)
    assert np.abs(evaluating.act(make_obs(None, 50)) - 1.0).max() < 0.2


@pytest.mark.parametrize("action_spec", ACTIONS.values(), ids=ACTIONS)
def test_an_agent_gives_actions_and_the_policy_they_are_from(action_spec: Any) -> None:
    agent = make_agent(action_spec)
    obs = make_obs(None, 7)
    actions, extras = agent.act(obs)
    continuous = action_spec["type"] == "continuous"
    shape = tuple(action_spec["dim"]) if action_spec["type"] != "discrete" else ()
    if action_spec["type"] == "multi_discrete":
        shape = (2,)
    assert actions.shape == (7, *shape)
    assert actions.dtype == (np.float32 if continuous else np.int64)
    assert set(extras) == ({"mean", "log_std"} if continuous else {"logits"})
    again = agent.network.head.of({name: torch.tensor(x) for name, x in extras.items()})
    assert torch.allclose(again.kl(agent.network(obs)[0]), torch.zeros(7), atol=1e-6)


def test_an_agent_explores_in_training_and_not_in_evaluation() -> None:
    obs = make_obs(None, 1).expand(3000, 4)
    actions, _ = make_agent().act(obs)
    assert np.bincount(actions, minlength=3).min() > 800
    assert len(set(make_agent(mode="eval_deterministic").act(obs).tolist())) == 1
    stochastic = make_agent(mode="eval_stochastic").act(obs)
    assert np.bincount(stochastic, minlength=3).min() > 800


def test_an_agent_draws_by_its_own_generator() -> None:
    obs = make_obs(None, 50)
    first, second = make_agent().act(obs)[0], make_agent().act(obs)[0]
    assert (first == second).all()
    assert (make_agent(session={"seed": 1}).act(obs)[0] != first).any()


@pytest.mark.parametrize(
    ("algo", "words"),
    [
        (
            {"adaptive_learning_rate": {"kl": 0.01, "low": 1.0}},
            r"begins at 0\.0003, but .*learning_rate has low 1\.0 and high 0\.01: expected 0 <",
        ),
        (
            {"adaptive_learning_rate": {"kl": 0.01}, "learning_rate": {"kind": "linear"}},
            r"learning_rate\.kl is 0\.01, but .*learning_rate is linear: set its kind to constant",
        ),
        ({"learning_rate": {"kind": "cubic"}}, r"algo\.learning_rate\.kind is 'cubic'"),
    ],
)
def test_options_that_do_not_fit_are_refused(algo: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_learner(**algo)


def test_explained_variance() -> None:
    targets, ones = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3)
    assert explained_variance(targets, targets, ones) == 1.0
    assert explained_variance(torch.full((3,), 2.0), targets, ones) == 0.0
    assert explained_variance(-targets, targets, ones) < 0.0


def test_a_penalty_of_0_stays_off_and_a_nan_changes_nothing() -> None:
    off, on = KLPenalty(0.0, 0.01), KLPenalty(1.0, 0.01)
    off.adapt(5.0)
    on.adapt(math.nan)
    assert (off.coefficient, on.coefficient) == (0.0, 1.0)


RATE = {"learner_config__algo__learning_rate__start": 5e-3}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["gaussian", "beta", "squashed_gaussian"])
def test_continuous_actions_come_near_the_optimum(tmp_path: Path, policy: str) -> None:
    words: dict[str, Any] = {**RATE, "learner_config__model__policy": policy}
    run = play(tmp_path / "run", "ppo", "toy:target", env_steps=12_000, **words)
    # Actions drawn as before learning give -16.7 or so.
    assert run.result["best_eval"]["mean_return"] > -0.5


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", [False, True])
def test_a_time_limit_is_bootstrapped(tmp_path: Path, synchronous: bool) -> None:
    words: dict[str, Any] = {
        **RATE,
        "learner_config__algo__gamma": GAMMA,
        "learner_config__algo__synchronous": synchronous,
    }
    run = play(tmp_path / "run", "ppo", "toy:clock", env_steps=12_000, **words)
    assert run.result["best_eval"]["mean_return"] == Clock().optimal_return
    policy: Any = load_policy(tmp_path / "run", "latest")
    running = policy._agents[True].network(torch.tensor([[0.0, 1.0]]))[1].item()
    assert running == pytest.approx(1.0 / (1.0 - GAMMA), abs=1.0)
    lag = run.result["lag"]
    if synchronous:
        assert lag["max_versions"] == 0
