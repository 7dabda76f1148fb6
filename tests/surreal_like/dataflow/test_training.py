"""Operators that train: an update and its parts, passes, what is an iteration, an own learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like.algorithm.ddpg import DDPG
from surreal_like.algorithm.dqn import DQN, DQNLearner
from surreal_like.algorithm.impala import Impala, ImpalaLearner
from surreal_like.algorithm.ppo import PPO
from surreal_like.algorithm.sac import SAC
from surreal_like.algorithm.td3 import TD3
from surreal_like.data.batch import Batch, Sampled
from surreal_like.dataflow import (
    NOT_READY,
    PASSED,
    STALLED,
    Flow,
    Gradients,
    LocalReplay,
    Loss,
    Trained,
    apply_gradients,
    average_gradients,
    compute_advantages,
    compute_gradients,
    concat,
    every,
    experience,
    from_items,
    mix_in,
    replay,
    report,
    rollouts,
    store,
    train_one_step,
    update_priorities,
    update_target,
)
from surreal_like.errors import DataError
from surreal_like.learner.learner import Learner
from surreal_like.learner.operators import learn_from
from tests.surreal_like.algorithm import transitions, unrolls
from tests.surreal_like.algorithm.unrolls import DISCRETE, B, T, configs
from tests.surreal_like.dataflow.scripts import link

PLANS = {
    DQN: "replay -> train_one_step -> learn_moments -> update_target -> update_priorities",
    Impala: "rollouts -> train_one_step -> learn_moments",
    PPO: "rollouts -> compute_advantages(lambda=0.95) -> standardize(advantages)"
    " -> train_one_step(4 x 4) -> update_kl -> learn_moments",
    DDPG: "replay -> train_one_step(critic_loss) -> update_priorities"
    " -> train_one_step(policy_loss) -> update_target -> learn_moments",
    TD3: "replay -> train_one_step(critic_loss) -> update_priorities"
    " -> every(2, train_one_step(policy_loss) -> update_target) -> learn_moments",
    SAC: "replay -> train_one_step(critic_loss) -> update_priorities"
    " -> train_one_step(policy_loss) -> learn_moments -> update_target",
}


def options(algorithm: Any, **changed: Any) -> Any:
    continuous = "discrete" not in algorithm.actions
    return (
        transitions.options(algorithm, **changed) if continuous else configs(algorithm, **changed)
    )


def make(algorithm: Any, kind: Any = None, **changed: Any) -> Any:
    torch.manual_seed(0)
    return (kind or algorithm.learner)(**options(algorithm, **changed))


def make_rows(seed: int = 0) -> Batch:
    batch = transitions.make_transitions(seed)
    batch["actions"] = torch.randint(0, 3, (transitions.SIZE,))
    return batch


def make_unrolls(seed: int = 0) -> Batch:
    return unrolls.make_batch(DISCRETE, seed=seed)


@pytest.mark.parametrize(("algorithm", "expected"), PLANS.items())
def test_the_plans_of_the_shipped_algorithms(algorithm: Any, expected: str) -> None:
    assert make(algorithm).flow.describe() == expected


# -- the parts of an update ------------------------------------------------------------------------


class Plain(DQNLearner):
    """DQN whose plan is built of parts of an update."""

    def execution_plan(self) -> Flow:
        flow = replay(self).for_each(compute_gradients(self)).for_each(apply_gradients(self))
        return flow.for_each(update_target(self.target))


class Parts(ImpalaLearner):
    """The same for unrolls."""

    def execution_plan(self) -> Flow:
        return rollouts(self).for_each(compute_gradients(self)).for_each(apply_gradients(self))


@pytest.mark.parametrize(
    ("algorithm", "kind", "make_batch"),
    [(DQN, Plain, make_rows), (Impala, Parts, make_unrolls)],
)
def test_applied_gradients_equal_one_step(algorithm: Any, kind: Any, make_batch: Any) -> None:
    one, parts = make(algorithm), make(algorithm, kind)
    for seed in range(4):
        first, second = one.learn(make_batch(seed)), parts.learn(make_batch(seed))
        for name in second:
            assert float(first[name]) == float(second[name]), name
    networks = [next(iter(each.module_dict().values())) for each in (one, parts)]
    assert networks[0].hash() == networks[1].hash()


def test_gradients_are_averaged_by_rows() -> None:
    both = [
        Gradients(torch.tensor([1.0, 2.0]), 10, 7, {"loss": 1.0}, ("optimizer",)),
        Gradients(torch.tensor([4.0, 8.0]), 30, 5, {"loss": 3.0}, ("optimizer",)),
    ]
    mean = from_items(both).batch(2).for_each(average_gradients()).take(1)[0]
    assert mean.flat.tolist() == [3.25, 6.5]
    assert (mean.rows, mean.version, mean.metrics) == (40, 5, {"loss": 2.0})
    other = Gradients(torch.zeros(2), 1, 0, {}, ("policy",))
    with pytest.raises(DataError, match=r"\('optimizer',\) and of \('policy',\) have no mean"):
        average_gradients()([both[0], other])


def test_gradients_know_their_rows_and_the_oldest_version() -> None:
    learner, batch = make(Impala), make_unrolls()
    batch["version"] = torch.arange(T * B).view(T, B) + 5
    gradients = compute_gradients(learner)(batch)
    assert (gradients.rows, gradients.version) == (T * B - 2, 5)
    assert gradients.flat.shape == (sum(p.numel() for p in learner.network.parameters()),)


def test_a_gradient_that_is_not_finite_is_skipped() -> None:
    learner, batch = make(Impala, Parts), make_unrolls()
    before = learner.network.hash()
    batch["rewards"][1, 1] = math.nan
    metrics = learner.learn(batch)
    assert (metrics["skipped"], metrics["nan_updates"]) == (1.0, 1)
    assert learner.network.hash() == before


def test_an_infinite_loss_with_a_finite_gradient_is_skipped() -> None:
    learner, batch = make(DQN, Plain), make_rows()
    batch["rewards"][1] = math.inf
    assert learner.learn(batch)["skipped"] == 1.0


def test_a_gradient_of_another_length_is_refused() -> None:
    learner = make(Impala)
    gradients = Gradients(torch.zeros(3), 1, names=("optimizer",))
    with pytest.raises((ValueError, RuntimeError), match="3"):
        apply_gradients(learner)(gradients)


# -- passes ----------------------------------------------------------------------------------------


def seen_in_passes(num_sgd_iter: int, minibatches: int, until: Any = None) -> tuple[Any, Trained]:
    learner, seen = make(DQN), []

    def loss(batch: Batch) -> Any:
        seen.append(batch.indices.tolist())
        return Loss(learner.loss(batch).total, {"size": float(len(batch.indices))})

    train = train_one_step(learner, loss, num_sgd_iter, minibatches, until)
    return seen, train(make_rows())


def test_each_pass_uses_each_row_once_in_a_new_order() -> None:
    seen, trained = seen_in_passes(3, 4)
    assert [len(part) for part in seen] == [2, 2, 1, 1] * 3
    passes = [list(chain(*seen[i : i + 4])) for i in (0, 4, 8)]
    assert all(sorted(each) == list(range(6)) for each in passes)
    assert passes[0] != passes[1] != passes[2]
    assert trained.metrics["size"] == 1.5
    assert "passes" not in trained.metrics


def test_passes_end_when_until_says_so() -> None:
    found: list[Mapping[str, float]] = []

    def until(means: Mapping[str, float]) -> bool:
        found.append(dict(means))
        return len(found) == 2

    seen, trained = seen_in_passes(5, 2, until)
    assert len(seen) == 4
    assert trained.metrics["passes"] == 2.0
    assert found[0]["size"] == 3.0
    assert trained.last_pass is not None
    assert dict(trained.last_pass) == found[1]


# -- what counts as an iteration -------------------------------------------------------------------


def test_two_steps_behind_each_other_are_one_update() -> None:
    learner = make(SAC)
    learner.feed(transitions.make_transitions(), learner.flow)
    (update,) = learner.pop_updates()
    assert {"loss", "policy_loss", "temperature", "grad_norm"} <= update.metrics.keys()
    assert learner.pop_updates() == []


class Branches(DQNLearner):
    """Trains in two branches, and hides the items."""

    def execution_plan(self) -> Flow:
        one, other = experience(self).duplicate(2)
        train = train_one_step(self)
        both = one.for_each(train).union(other.for_each(train))
        return both.filter(lambda item: False)


def test_two_branches_that_train_are_two_updates_even_if_hidden() -> None:
    learner = make(DQN, Branches)
    learner.feed(make_rows(), learner.flow)
    counts = [len(learner.pop_updates())]
    learner.flow.pull()
    assert [*counts, len(learner.pop_updates())] == [1, 1]


class Collecting(DQNLearner):
    """Learns from two batches at a time."""

    def execution_plan(self) -> Flow:
        return replay(self).combine(concat(12)).for_each(train_one_step(self))


def test_learn_pulls_until_its_batch_is_used() -> None:
    learner = make(DQN, Collecting)
    before = learner.q_network.hash()
    assert learner.learn(make_rows(0)) == {}
    assert learner.q_network.hash() == before
    assert learner.learn(make_rows(1))["skipped"] == 0.0
    assert learner.q_network.hash() != before


# -- a learn() of one's own ------------------------------------------------------------------------


class Watched(DQNLearner):
    calls = 0

    def learn(self, batch: Batch) -> Any:
        self.calls += 1
        return {**(super().learn(batch) or {}), "calls": self.calls}


def test_an_own_learn_takes_the_place_of_the_plan_and_may_call_it() -> None:
    mine, plain = make(DQN, Watched), make(DQN)
    assert mine.flow.describe() == "replay -> learn"
    train = learn_from(mine, mine.learn)
    for seed in range(3):
        trained = train(make_rows(seed))
        plain.learn(make_rows(seed))
        assert mine.pop_updates() == [trained]
        assert trained.metrics["calls"] == seed + 1
        assert {"loss", "td_error"} <= trained.metrics.keys()
    assert mine.target.updates == 3
    assert mine.q_network.hash() == plain.q_network.hash()


class Planned(Watched):
    def execution_plan(self) -> Flow:
        return replay(self).for_each(train_one_step(self)).for_each(update_target(self.target))


def test_a_plan_below_an_own_learn_is_used() -> None:
    assert make(DQN, Planned).flow.describe() == "replay -> train_one_step -> update_target"


def test_a_learner_without_loss_and_learn_says_so() -> None:
    class Empty(Learner):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must implement loss\(batch\) or learn"):
        make(DQN, Empty).learn(make_rows())


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"policy": torch.tensor(0.0)}, r"\['policy'\].*the optimizers are \['optimizer'\]"),
        (0.5, "a float, expected a scalar tensor"),
        (None, "a NoneType, expected a scalar tensor"),
        ((torch.tensor(0.0), {"mean": 1.0}), r"a tuple, .* with metrics Loss\(total, metrics\)"),
        (torch.zeros(128), r"loss of DQNLearner returned \[128\], expected a scalar"),
    ],
)
def test_what_is_no_loss_is_refused_with_its_place(returned: Any, words: str) -> None:
    learner = make(DQN)

    def wrong(batch: Batch) -> Any:
        return Loss(returned) if returned is not None else None

    with pytest.raises(DataError, match=words) as raised:
        train_one_step(learner, wrong)(make_rows())
    assert "test_training.py" in str(raised.value)


@pytest.mark.parametrize("loss", [math.nan, torch.tensor(math.inf, requires_grad=True)])
def test_a_loss_of_an_own_learn_that_is_not_finite_makes_a_bad_update(loss: Any) -> None:
    given = iter((loss, 0.5))
    learn = learn_from(make(DQN), lambda batch: {"loss": next(given)})
    assert learn(make_rows()).metrics["skipped"]
    assert "skipped" not in learn(make_rows()).metrics


def test_a_plan_that_is_no_flow_is_refused() -> None:
    class Listing(DQNLearner):
        def execution_plan(self) -> Any:
            return [replay(self)]

    with pytest.raises(ConfigError, match="plan of Listing is a list, expected a Flow"):
        assert make(DQN, Listing).flow


# -- sources ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "algorithm", "words"),
    [
        (rollouts, DQN, r"rollouts\(learner\), but .*UniformReplay.*single rows: use replay"),
        (replay, PPO, r"replay\(learner\), but .*FIFOReplay.*whole unrolls: use rollouts"),
        (lambda x: rollouts(x, "bulk_sync"), PPO, "'bulk_sync'.*synchronous is False"),
    ],
)
def test_a_source_of_the_other_kind_is_refused(build: Any, algorithm: Any, words: str) -> None:
    learner = make(algorithm)
    with pytest.raises(ConfigError, match=words):
        build(learner)


def test_the_mode_of_rollouts_agrees_with_the_config() -> None:
    learner = make(PPO, synchronous=True)
    assert rollouts(learner, "bulk_sync").name == "rollouts"
    with pytest.raises(ConfigError, match=r"'async', but .*synchronous is True.*'bulk_sync'"):
        rollouts(learner, "async")
    with pytest.raises(ValueError, match=r"set learner_config\.replay\.batch_size"):
        replay(make(DQN), batch_size=3)


def test_batches_come_with_their_origin() -> None:
    learner = make(DQN)
    sampled = SimpleNamespace(columns={"rewards": torch.zeros(3).numpy()})
    ready = [sampled]
    link(learner, next=lambda: ready.pop() if ready else None)
    flow = replay(learner)
    batch = flow.pull()
    assert batch.origin is sampled is learner.sampled
    assert flow.pull() is NOT_READY


# -- what follows an update ------------------------------------------------------------------------


def test_every_follows_the_iteration() -> None:
    learner, calls = make(DQN), []
    target: Any = SimpleNamespace(update=lambda: calls.append(learner.iteration))
    count = update_target(target)
    operator = every(3, train_one_step(learner), count)
    for learner.iteration in range(7):
        operator(make_rows())
    assert calls == [0, 3, 6]
    assert operator.name == "every(3, train_one_step -> update_target)"
    for updates, operators in ((0, [operator]), (2, [count])):
        with pytest.raises(ConfigError, match=r"needs 1 or more, and .* learner=learner"):
            every(updates, *operators)


def test_every_takes_plain_functions() -> None:
    learner, seen = make(DQN), []

    def see(item: str) -> str:
        seen.append((learner.iteration, item))
        return item

    operator = every(2, see, learner=learner)
    for learner.iteration in range(4):
        assert operator("item") == "item"
    assert seen == [(0, "item"), (2, "item")]
    assert operator.name == "every(2, see)"


def test_priorities_are_sent_of_batches_as_they_came() -> None:
    learner, sent = make(DQN), []
    link(
        learner,
        takes_priorities=lambda sampled: True,
        update_priorities=lambda sampled, array: sent.append((sampled, array.tolist())),
    )
    batch, send = make_rows(), update_priorities(learner)
    send(Trained(batch, {}, torch.tensor([1.0, 2.0])))
    assert not sent
    batch.origin = Sampled({"indices": np.array([4, 9])}, 1, 7, {})
    batch["indices"] = torch.tensor([4, 9])
    send(Trained(batch, {}))
    assert not sent
    send(Trained(batch, {}, torch.tensor([1.0, 2.0])))
    (origin, priorities) = sent[0]
    assert (origin.shard, origin.columns["indices"].tolist(), priorities) == (1, [4, 9], [1.0, 2.0])


def from_shards() -> list[Batch]:
    """Batches of four shards; row i of shard s is index 10 i, with a reward of 100 s + i."""
    batches = []
    for shard in range(4):
        batch = make_rows()
        batch["rewards"] = 100.0 * shard + torch.arange(2.0)
        batch["indices"] = torch.tensor([0, 10])
        batch["version"] = torch.tensor([shard, shard + 5])
        columns = {"indices": batch.indices.numpy(), "version": batch.version.numpy()}
        batch.origin = Sampled(columns, shard, 7, {"sampled": float(shard)})
        batches.append(batch)
    return batches


def rewards_as_priorities(learner: Any) -> Any:
    def loss(batch: Batch) -> Loss:
        q = learner.q_network(batch.obs)
        return Loss((q * 0.0).sum(), {}, batch.rewards)

    return loss


def made_anew(batch: Batch) -> Batch:
    return Batch({**batch, "rewards": batch.rewards.clone()})


def only_the_second(batch: Batch) -> Batch:
    return Batch({name: x if name == "extras" else x[1:] for name, x in batch.items()})


# Each takes a flow of four batches, and trains.
TO_PRIORITIES: dict[str, Any] = {
    "as they came": lambda flow, train, _: flow.for_each(train()),
    "concat": lambda flow, train, _: flow.combine(concat(4)).for_each(train()),
    "concat twice": lambda flow, train, _: (
        flow.combine(concat(3)).combine(concat(8)).for_each(train())
    ),
    "mix_in": lambda flow, train, _: flow.combine(mix_in(2, 1)).for_each(train()),
    "concat behind mix_in": lambda flow, train, _: (
        flow.combine(mix_in(2, 1)).combine(concat(8)).for_each(train())
    ),
    "another batch": lambda flow, train, _: flow.for_each(made_anew).for_each(train()),
    "a list of batches": lambda flow, train, _: flow.combine(
        lambda batch: [made_anew(batch)]
    ).for_each(train()),
    "other rows": lambda flow, train, _: flow.for_each(only_the_second).for_each(train()),
    "stored": lambda flow, train, _: flow.for_each(store(LocalReplay(9))).for_each(train()),
    "minibatches": lambda flow, train, _: flow.combine(concat(8)).for_each(
        train(num_sgd_iter=2, minibatches=3)
    ),
    "gradients": lambda flow, train, parts: flow.for_each(parts[0]).for_each(parts[1]),
    "mean of gradients": lambda flow, train, parts: (
        flow.for_each(parts[0]).batch(2).for_each(average_gradients()).for_each(parts[1])
    ),
}


@pytest.mark.parametrize("plan", TO_PRIORITIES)
def test_each_shard_gets_the_priorities_of_its_rows(plan: str) -> None:
    learner, sent = make(DQN), []
    link(
        learner,
        takes_priorities=lambda sampled: True,
        update_priorities=lambda sampled, array: sent.append((sampled, array.tolist())),
    )
    loss = rewards_as_priorities(learner)
    parts = compute_gradients(learner, loss), apply_gradients(learner)
    train = partial(train_one_step, learner, loss)
    flow = TO_PRIORITIES[plan](from_items(from_shards()), train, parts)
    trained = list(flow.for_each(update_priorities(learner)))
    given = {
        (origin.shard, int(index)): priority
        for origin, priorities in sent
        for index, priority in zip(origin.columns["indices"], priorities, strict=True)
    }
    rows = [1] if plan == "other rows" else [0, 1]
    assert given == {(shard, 10 * row): 100.0 * shard + row for shard in range(4) for row in rows}
    # Lag and age are measured by these.
    versions = [each.batch.origin.columns["version"].tolist() for each in trained]
    assert {version for each in versions for version in each} == {0, 1, 2, 3, 5, 6, 7, 8}
    assert all("sampled" in each.batch.origin.stamps for each in trained)


def test_priorities_of_other_rows_than_came_are_refused() -> None:
    learner = make(DQN)
    batch = only_the_second(from_shards()[0])
    del batch["indices"]
    batch.origin = from_shards()[0].origin
    with pytest.raises(DataError, match=r"has 1 priorities for 2 rows .* keep their column 'ind"):
        update_priorities(learner)(Trained(batch, {}, torch.ones(1)))


def test_rows_of_a_local_replay_in_a_joined_batch_have_no_priorities_there() -> None:
    learner, sent = make(DQN), []
    link(
        learner,
        takes_priorities=lambda sampled: True,
        update_priorities=lambda sampled, array: sent.append((sampled.shard, array.tolist())),
    )
    first, local, last = from_shards()[:3]
    local.origin = None
    (joined,) = from_items([first, local, last]).combine(concat(6))
    update_priorities(learner)(Trained(joined, {}, joined.rewards))
    assert sent == [(0, [0.0, 1.0]), (2, [200.0, 201.0])]


class Valuing:
    """Values of 10 everywhere."""

    def unroll(self, obs: Any, state: Any, first: torch.Tensor) -> Any:
        return None, torch.full(first.shape, 10.0)


@pytest.mark.parametrize(("end", "expected"), [(0.0, [1.75, 1.5, 1.0]), (0.5, [3.0, 4.0, 6.0])])
def test_returns_bootstrap_behind_a_cut_and_not_behind_a_termination(
    end: float, expected: list[float]
) -> None:
    batch = Batch(
        obs=None,
        first=torch.zeros(4, 1, dtype=torch.bool),
        rewards=torch.ones(3, 1),
        discounts=torch.tensor([[0.5], [0.5], [end]]),
        mask=torch.ones(3, 1),
        extras={},
    )
    learner: Any = SimpleNamespace(network=Valuing())
    compute_advantages(learner, lambda_=1.0, use_gae=False)(batch)
    assert batch.advantages[:, 0].tolist() == expected
    assert batch.value_targets[:, 0].tolist() == expected
    compute_advantages(learner, lambda_=1.0)(batch)
    assert batch.value_targets[:, 0].tolist() == expected
    assert batch.advantages[:, 0].tolist() == [each - 10.0 for each in expected]


@pytest.mark.parametrize(("algorithm", "rows"), [(PPO, T * B - 2), (Impala, T * B)])
def test_stats_join_the_metrics(algorithm: Any, rows: int) -> None:
    class Reporting(algorithm.learner):  # type: ignore[misc]
        def stats(self, batch: Batch) -> dict[str, Any]:
            return {**super().stats(batch), "rows": batch.mask.numel()}

    metrics = make(algorithm, Reporting).learn(make_unrolls())
    assert metrics["rows"] == rows
    assert "explained_variance" in metrics


def test_a_stalled_plan_is_not_pulled_for_ever() -> None:
    class Stuck(DQNLearner):
        def execution_plan(self) -> Flow:
            stall: Callable[[Any], Any] = lambda item: STALLED  # noqa: E731
            return replay(self).for_each(stall)

    assert make(DQN, Stuck).learn(make_rows()) == {}


@pytest.mark.parametrize(("seconds", "lines"), [(1e-9, 3), (1e9, 0)])
def test_a_script_gets_its_numbers_at_intervals(seconds: float, lines: int) -> None:
    learner = make(DQN)
    learner.env_steps = 50
    flow = from_items([make_rows(seed) for seed in range(3)])
    flow = flow.for_each(train_one_step(learner)).for_each(report(learner, seconds=seconds))
    found = [item for item in (flow.pull() for _ in range(3)) if item is not PASSED]
    assert [line["iterations"] for line in found] == [1, 2, 3][:lines]
    for line in found:
        assert line["env_steps"] == 50
        assert {"loss", "grad_norm", "learning_rate"} <= line["learn"].keys()


def test_metrics_of_two_losses_of_one_update_do_not_overwrite_each_other() -> None:
    learner = make(DQN)
    q = learner.q_network

    def near(batch: Batch) -> Loss:
        return Loss(q(batch.obs).square().mean(), {"mine": 1.0})

    def far(batch: Batch) -> Loss:
        return Loss(100.0 + q(batch.obs).square().mean(), {"mine": 2.0})

    step = partial(train_one_step, learner)
    (trained,) = (
        from_items([make_rows()])
        .for_each(step(near))
        .for_each(step(far))
        .for_each(step(lambda batch: near(batch)))
    )
    metrics = trained.metrics
    assert (metrics["mine"], metrics["far/mine"], metrics["again/mine"]) == (1.0, 2.0, 1.0)
    assert float(metrics["loss"]) < 100.0 < float(metrics["far/loss"])
    assert {"grad_norm", "far/grad_norm", "again/grad_norm"} < metrics.keys()
    counted = {"skipped", "nan_updates", "learning_rate"}
    assert counted == {name for name in metrics if name.rpartition("/")[2] in counted}


def test_metrics_of_two_optimizers_do_not_overwrite_each_other() -> None:
    one, two, third = (torch.nn.Linear(1, 1) for _ in range(3))
    learner = make(DQN)
    learner.optimizers.clear()
    learner.add_optimizer("policy", one, 0.1)
    learner.add_optimizer("value", two, 0.2)
    learner.add_optimizer("mine", third, 0.3, metrics=("own_norm", ""))

    def loss(batch: Batch) -> Loss:
        networks = {"policy": one, "value": two, "mine": third}
        return Loss({name: each.weight.sum() for name, each in networks.items()})

    metrics = train_one_step(learner, loss)(make_rows()).metrics
    assert (metrics["learning_rate"], metrics["value/learning_rate"]) == (0.1, 0.2)
    assert {"grad_norm", "value/grad_norm", "own_norm"} < metrics.keys()


@pytest.mark.parametrize("algorithm", PLANS)
def test_no_two_optimizers_of_a_shipped_algorithm_share_a_metric(algorithm: Any) -> None:
    optimizers = make(algorithm).optimizers.values()
    names = [each.norm_name for each in optimizers] + [each.rate_name for each in optimizers]
    given = [name for name in names if name]
    assert len(given) == len(set(given))
    assert not any("/" in name for name in given)
