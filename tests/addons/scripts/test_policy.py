"""A policy made in this process: it acts, learns, and gives its weights and its state away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from session.errors import UsageError
from surreal_like.addons.scripts.policy import Policy, make_policy
from surreal_like.addons.scripts.worker_set import RolloutWorker
from surreal_like.algorithm.builder import build_algorithm
from surreal_like.algorithm.dqn import DQN
from surreal_like.data.batch import Batch
from surreal_like.dataflow import (
    Flow,
    Trained,
    apply_gradients,
    average_gradients,
    compute_gradients,
    concat,
    concurrently,
    replay,
    train_one_step,
    update_kl,
    update_learning_rate,
)
from surreal_like.errors import DataError, SpecError
from tests.add_ons import needs
from tests.surreal_like.algorithm.unrolls import make_batch
from tests.surreal_like.replay.chunks import chunk_of

SMALL = ("learner_config.model.hidden_sizes=[8]", "learner_config.device=cpu")
# Of toy:chain.
SPECS: dict[str, Any] = {"type": "discrete", "dim": [2]}


def made(algorithm: Any = "impala", *words: str) -> Policy:
    return make_policy(algorithm, env="toy:chain", overrides=[*SMALL, *words])


def batch(seed: int = 0) -> Batch:
    found = make_batch(SPECS, seed=seed)
    found["obs"] = torch.randn(*found.first.shape, 8)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_it_acts_and_gives_what_the_learner_needs() -> None:
    policy = made()
    obs = np.eye(8, dtype=np.float32)
    actions, state, extras = policy.compute_actions(obs)
    assert (actions.shape, state, policy.get_initial_state(3)) == ((8,), None, None)
    assert extras["logits"].shape == (8, 2)
    _, _, extras = policy.compute_actions(obs, deterministic=True)
    assert not extras
    one, _, extras = policy.compute_actions(obs[0])
    assert (np.shape(one), extras["logits"].shape) == ((), (2,))
    assert policy(obs)[0].shape == (8,)


@pytest.mark.parametrize("clips", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_call_gives_actions_that_an_environment_takes(clips: bool, deterministic: bool) -> None:
    policy = make_policy(
        "ppo",
        env="gym:Pendulum-v1",
        overrides=[*SMALL, f"env_config.clip_action={str(clips).lower()}"],
    )
    policy.set_weights({name: 1000 * each for name, each in policy.get_weights().items()})
    obs = np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)
    drawn, _, _ = policy.compute_actions(obs, deterministic=True)
    assert np.abs(drawn).max() > 2
    given, _ = policy(obs, deterministic=deterministic)
    assert bool(np.abs(given).max() <= 2) is clips
    if deterministic:
        assert np.array_equal(given, np.clip(drawn, -2, 2) if clips else drawn)


def test_a_memory_is_the_callers() -> None:
    policy = made("impala", "learner_config.model.memory=gru", "learner_config.model.memory_size=4")
    state = policy.get_initial_state(1)
    assert not state.any()
    _, first, extras = policy.compute_actions(np.eye(8, dtype=np.float32)[:1], state)
    _, second, _ = policy.compute_actions(np.eye(8, dtype=np.float32)[:1], first)
    assert extras["memory"].shape == (1, 4)
    assert not torch.equal(first, second)


def test_it_acts_with_the_weights_that_it_has_learned() -> None:
    policy = made()
    before = policy.get_weights()
    assert policy.agent.version == 0
    metrics = policy.learn_on_batch(batch())
    assert all(isinstance(value, float) for value in metrics.values())
    after = policy.get_weights()
    assert not same(before, after)
    assert (policy.learner.iteration, policy.agent.version) == (1, 1)
    acting = policy.agent.module_dict()["network"].state_dict()
    assert all(np.array_equal(acting[n.partition("/")[2]], each) for n, each in after.items())


def test_gradients_and_their_step_are_an_update() -> None:
    one, other = made(), made()
    assert same(one.get_weights(), other.get_weights())
    flat, metrics = one.compute_gradients(batch())
    assert same(one.get_weights(), other.get_weights())
    assert metrics["loss"] == other.learn_on_batch(batch())["loss"]
    one.apply_gradients(flat)
    assert same(one.get_weights(), other.get_weights())
    assert one.learner.iteration == 1
    with pytest.raises(DataError, match=rf"gradients are \[3\], but .* are \[{len(flat)}\]"):
        one.apply_gradients(flat[:3])


def test_weights_of_another_name_or_shape_are_refused() -> None:
    policy = made()
    weights = policy.get_weights()
    assert policy.agent.version == 0
    policy.set_weights({name: 0 * each for name, each in weights.items()})
    assert not any(each.any() for each in policy.get_weights().values())
    acting = policy.agent.module_dict()["network"].parameters()
    assert not any(each.any() for each in acting)
    name = next(iter(weights))
    with pytest.raises(SpecError, match=f"{name}.*they have"):
        policy.set_weights({**weights, name: np.zeros((1, 2), np.float32)})
    with pytest.raises(SpecError, match=r"they have .*mine"):
        policy.set_weights({**weights, "mine": np.zeros(1, np.float32)})


def test_a_state_is_all_from_which_it_goes_on() -> None:
    one, other = made("ppo"), made("ppo")
    for seed in range(3):
        one.learn_on_batch(batch(seed))
    other.set_state(one.get_state())
    assert other.learner.iteration == 3
    for policy in (one, other):
        policy.learner.generator.manual_seed(5)
        policy.learn_on_batch(batch(7))
    assert same(one.get_weights(), other.get_weights())


def test_a_policy_without_a_learner_only_acts() -> None:
    full = made("ppo")
    agent = full.agent
    policy = Policy({True: agent, False: agent}, full.config)
    assert policy.compute_actions(np.zeros(8, np.float32))[2].keys() == {"logits"}
    assert policy.get_weights().keys() == full.get_weights().keys()
    assert not policy.learns
    with pytest.raises(UsageError, match=r"only acts.*trainable=True"):
        policy.learn_on_batch(batch())


def test_a_chunk_is_postprocessed_as_the_agent_does_it() -> None:
    policy = made("tests.runs.three_forms:Built")
    chunk = chunk_of("FMMT")
    columns = {name: each for name, each in chunk.columns.items() if not name.startswith("obs/")}
    columns["obs"] = np.zeros((4, 1, 8), np.float32)
    chunk.columns = columns
    assert "extras/advantages" in policy.postprocess(chunk).columns


def collected(*sizes: int) -> Batch:
    """Transitions of toy:chain, as many as asked for."""
    (size,) = sizes
    obs = torch.eye(8)[torch.arange(size) % 8]
    return Batch(
        obs=obs,
        obs_next=obs.roll(1, 0),
        actions=torch.zeros(size, dtype=torch.int64),
        rewards=torch.ones(size),
        discounts=torch.full((size,), 0.9),
        dones=torch.zeros(size),
        weights=torch.ones(size),
        indices=torch.arange(size),
        extras={},
    )


def collecting(learner: Any) -> Flow:
    return replay(learner).combine(concat(50)).for_each(train_one_step(learner))


def choosing(learner: Any) -> Flow:
    some = replay(learner).filter(lambda batch: batch.rows > 20)
    return some.for_each(train_one_step(learner))


def listing(learner: Any) -> Flow:
    return replay(learner).batch(3).flatten().for_each(train_one_step(learner))


def branching(learner: Any) -> Flow:
    one, other = replay(learner).duplicate(2)
    step = train_one_step(learner)
    return concurrently([one.for_each(step), other.for_each(step)])


def gradients(learner: Any) -> Flow:
    made = replay(learner).for_each(compute_gradients(learner)).batch(2)
    return made.for_each(average_gradients()).for_each(apply_gradients(learner))


Collecting = build_algorithm("Collecting", base=DQN, execution_plan=collecting)
Choosing = build_algorithm("Choosing", base=DQN, execution_plan=choosing)
Listing = build_algorithm("Listing", base=DQN, execution_plan=listing)
Branching = build_algorithm("Branching", base=DQN, execution_plan=branching)
Averaging = build_algorithm("Averaging", base=DQN, execution_plan=gradients)


@pytest.mark.parametrize(
    ("algorithm", "iterations"),
    [
        (Collecting, [0, 0, 1, 1, 1, 2]),
        (Choosing, [0, 0, 0, 0, 0, 0]),
        (Listing, [0, 0, 1, 3, 3, 4]),
        (Averaging, [0, 1, 1, 2, 2, 3]),
    ],
)
def test_only_updates_are_counted(algorithm: Any, iterations: list[int]) -> None:
    policy, seen = made(algorithm), []
    for _ in range(6):
        before = policy.learner.iteration
        metrics = policy.learn_on_batch(collected(20))
        seen.append(policy.learner.iteration)
        assert bool(metrics) == (policy.learner.iteration > before)
    assert seen == iterations


def test_every_update_of_a_plan_with_branches_is_counted() -> None:
    policy, updates = made(Branching), 0
    step = policy.learner.optimizers["optimizer"].step

    def counting(loss: torch.Tensor, rows: int = 1) -> float:
        nonlocal updates
        updates += 1
        return step(loss, rows)

    policy.learner.optimizers["optimizer"].step = counting  # type: ignore[method-assign]
    for _ in range(4):
        policy.learn_on_batch(collected(20))
        assert policy.learner.iteration == updates
    assert updates > 0


@pytest.mark.parametrize(
    "algorithm",
    [
        *("ppo", "pqn", "impala", "dqn"),
        *(
            pytest.param(each, marks=needs(of))
            for each, of in (("a3c", "gradients"), ("r2d2", "r2d2"))
        ),
    ],
)
def test_gradients_of_a_sampled_batch_are_those_of_the_plan_and_change_nothing(
    algorithm: str,
) -> None:
    words = {
        "ppo": ["learner_config.model.normalize_values=true"],
        "r2d2": ["learner_config.replay.sequence={length: 6, burn_in: 2, period: 3}"],
    }.get(algorithm, [])
    policy = made(algorithm, *words)
    with RolloutWorker(policy, 2, 20) as worker:
        batch = worker.sample()
    columns, before = list(batch), policy.get_state()
    flat, metrics = policy.compute_gradients(batch)
    assert list(batch) == columns
    assert str(policy.get_state()) == str(before)
    assert np.isfinite(flat).all()
    assert flat.any()
    assert np.isfinite(metrics["loss"])


def test_overrides_are_a_list_or_a_mapping() -> None:
    settings = {"learner_config.model": {"hidden_sizes": [5]}, "learner_config.device": "cpu"}
    policy = make_policy("dqn", env="toy:chain", overrides=settings)
    assert policy.config.learner_config.model.hidden_sizes == [5]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("learner_config.model.normalize_values=true",),
        ("learner_config.algo.kl.stop=0.1",),
        ("learner_config.algo.adaptive_learning_rate.kl=0.01",),
    ],
)
def test_another_loss_needs_no_columns_of_the_algorithms_own(words: tuple[str, ...]) -> None:
    policy = made("ppo", *words)
    learner: Any = policy.learner
    with RolloutWorker(policy, 2, 20) as worker:
        batch = worker.sample()

    def loss(batch: Batch) -> torch.Tensor:
        squares: torch.Tensor = sum(x.square().sum() for x in learner.network.parameters())
        return squares

    trained = train_one_step(learner, loss, num_sgd_iter=2, minibatches=2)(batch)
    assert trained.metrics["skipped"] == 0.0
    assert "explained_variance" not in trained.metrics
    assert update_kl(learner.kl_penalty)(trained).metrics["kl_coefficient"] == 0.0


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("learner_config.algo.kl.coefficient=0.5", "update_kl"),
        ("learner_config.algo.adaptive_learning_rate.kl=0.01", "update_learning_rate"),
    ],
)
def test_what_follows_the_divergence_says_that_a_loss_gives_none(words: str, name: str) -> None:
    learner: Any = made("ppo", words).learner
    operator = update_learning_rate(learner.adaptive_step) if "rate" in name else None
    operator = operator or update_kl(learner.kl_penalty)
    with pytest.raises(DataError, match=f"{name} reads the metric 'kl', but the loss gives mine"):
        operator(Trained(Batch(), {"mine": 1.0}))
