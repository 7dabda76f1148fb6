"""Gradients made by agents: the row, the source, combining, ageing, delay compensation."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like.addons.gradients.a3c import A3C, A3CLearner
from surreal_like.addons.gradients.delay import compensate
from surreal_like.addons.gradients.maker import GradientMaker
from surreal_like.addons.gradients.replay import GradientView
from surreal_like.agent.agent import AgentMode
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.ppo import PPO, PPOLearner
from surreal_like.data.batch import Sampled
from surreal_like.dataflow import (
    NOT_READY,
    PASSED,
    Flow,
    Gradients,
    Operator,
    apply_gradients,
    async_gradients,
    average_gradients,
    compensate_delay,
    compute_advantages,
    experience,
    from_items,
    learn_moments,
    replay,
    rollouts,
    standardize,
    train_one_step,
)
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT, Chunk
from surreal_like.network.flat import load_flat, read_flat
from surreal_like.replay.replay import load_replay_class
from tests.surreal_like.algorithm.unrolls import BOX, DISCRETE, B, T, configs, make_batch
from tests.surreal_like.dataflow.scripts import link

ROWS = T + 1


def make(kind: type[Any] = A3CLearner, algorithm: Any = A3C, **changed: Any) -> Any:
    torch.manual_seed(0)
    learner = {"model": {"hidden_sizes": [8]}, "gradients_at": "agent"}
    learner["model"] |= changed.pop("model", {})
    learner["replay"] = changed.pop("replay", {})
    learner["gradients_at"] = changed.pop("gradients_at", "agent")
    return kind(**configs(algorithm, learner=learner, **changed))


def make_maker(learner: Any, algorithm: Any = A3C) -> GradientMaker:
    """The maker of an agent with the parameters of a learner."""
    named = ("learner_config", "env_config", "session_config")
    agent = algorithm.agent(
        **{name: getattr(learner, name) for name in named},
        agent_id=0,
        agent_mode=AgentMode.training,
    )
    load_flat(agent.module_dict(), read_flat(learner.module_dict()))
    agent.version = 7
    return GradientMaker(agent, type(learner))


def make_chunk(learner: Any, *, seed: int = 0, rows: int = ROWS) -> Chunk:
    """An unroll as an agent cuts it."""
    rng = np.random.default_rng(seed)
    step_type = rng.choice([1, 1, 1, 2, 0], (rows, B)).astype(np.uint8)
    discrete = learner.env_config.action_spec.type == "discrete"
    columns = {
        "step_type": step_type,
        "reward": rng.normal(size=(rows, B)).astype(np.float32),
        "discount": (step_type != 2).astype(np.float32),
        "version": np.full((rows, B), 7, np.int64),
        "obs": rng.normal(size=(rows, B, 4)).astype(np.float32),
        "action": rng.integers(0, 3, (rows, B))
        if discrete
        else rng.normal(size=(rows, B, 2)).astype(np.float32),
    }
    if learner.network.core is not None:
        size = learner.network.core.state_size
        columns["extras/memory"] = rng.normal(size=(rows, B, size)).astype(np.float32)
    elif discrete:
        columns["extras/logits"] = rng.normal(size=(rows, B, 3)).astype(np.float32)
    return Chunk(columns, 1, list(range(B)), sender="agent-0", overlap=1, env_steps=40)


def unrolls_of(learner: Any, chunks: list[Chunk]) -> dict[str, Any]:
    """What FIFOReplay gives of these, when it holds unrolls."""
    config = learner.learner_config.copy()
    config.gradients_at, config.replay.batch_size = "learner", B * len(chunks)
    session = learner.session_config.copy()
    session.sender.flush_iteration = T
    env = learner.env_config.copy()
    env.num_envs = B
    kind = load_replay_class(config)
    store = kind(learner_config=config, env_config=env, session_config=session)
    for chunk in chunks:
        store.insert_chunk(chunk)
    return next(iter(kind.collate(config)(store.sample_columns(B * len(chunks)), 1)))


def gradients_of(learner: Any, chunks: list[Chunk]) -> dict[str, Any]:
    """What it gives of the rows that agents have made of them."""
    store = load_replay_class(learner.learner_config)(
        learner_config=learner.learner_config,
        env_config=learner.env_config,
        session_config=learner.session_config,
    )
    for number, chunk in enumerate(chunks, 1):
        sent = replace(chunk, sequence=number)
        assert store.refusal(sent) is None
        store.insert_chunk(sent)
    return store.sample_columns(len(chunks))


def feed(learner: Any, columns: dict[str, Any]) -> list[Any]:
    """Pulls the plan for a batch of replay until nothing is left of it."""
    waiting, found = [Sampled(columns, 0, 0, {})], []
    link(learner, next=lambda: waiting.pop() if waiting else None)
    while (item := learner.flow.pull()) is not NOT_READY:
        found.append(item)
    return found


# -- the same parameters as from unrolls -----------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "discrete": {},
    "clipped": {"max_grad_norm": 0.3},
    "memory": {"model": {"memory": "lstm", "memory_size": 5}},
    "continuous": {"action_spec": BOX, "model": {"variance": "state", "normalize_obs": True}},
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_of_an_agent_changes_what_its_unroll_would_change(name: str) -> None:
    changed = CASES[name]
    one = make(**copy.deepcopy(changed), gradients_at="learner")
    two = make(**copy.deepcopy(changed))
    for seed in range(3):
        chunk = make_chunk(one, seed=seed)
        [first] = feed(one, unrolls_of(one, [chunk]))
        [second] = feed(two, gradients_of(two, [make_maker(two)(chunk)]))
        for metric, value in first.metrics.items():
            assert float(value) == pytest.approx(float(second.metrics[metric]), rel=1e-6), metric
        assert one.network.hash() == two.network.hash()
    assert second.metrics["gradients"] == 3


def asynchronous(learner: Any) -> Flow:
    """PPO by gradients of agents."""
    before = [compute_advantages(learner, 0.95), standardize("advantages")]
    return async_gradients(learner, before).for_each(apply_gradients(learner))


class Asynchronous(PPOLearner):
    def execution_plan(self) -> Flow:
        return asynchronous(self)


class Synchronous(PPOLearner):
    def execution_plan(self) -> Flow:
        flow = rollouts(self).for_each(compute_advantages(self, 0.95))
        return flow.for_each(standardize("advantages")).for_each(train_one_step(self))


def test_the_operators_before_the_gradient_run_in_the_agent() -> None:
    one = make(Synchronous, PPO, gradients_at="learner")
    two = make(Asynchronous, PPO)
    assert two.flow.describe() == (
        "async_gradients(compute_advantages(lambda=0.95), standardize(advantages))"
        " -> apply_gradients"
    )
    chunk = make_chunk(one)
    feed(one, unrolls_of(one, [chunk]))
    feed(two, gradients_of(two, [make_maker(two, PPO)(chunk)]))
    assert one.network.hash() == two.network.hash()


# -- the row ---------------------------------------------------------------------------------------


def test_an_unroll_becomes_one_row() -> None:
    learner = make(model={"normalize_obs": True})
    chunk = make_chunk(learner)
    row = make_maker(learner)(chunk)
    assert (row.shape, row.size, row.streams, row.overlap, row.env_steps) == ((1, 1), 1, [0], 0, 40)
    gradient = row.columns[GRADIENT]
    assert gradient.dtype == np.float32
    assert gradient.shape == (1, 1, sum(p.numel() for p in learner.network.parameters()))
    assert row.columns["version"].tolist() == [[7]]
    acted = int(np.count_nonzero(chunk.columns["step_type"][:-1] != 2))
    assert row.columns["extras/rows"].tolist() == [[acted]]
    norm = row.columns["extras/metrics/grad_norm"].item()
    assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert math.isfinite(row.columns[f"extras/metrics/{name}"].item())
    rows = chunk.columns["obs"][:-1].reshape(-1, 4)
    moments = {name: row.columns[f"extras/moments/part_0/{name}"] for name in ("count", "mean")}
    assert moments["count"].item() == len(rows)
    assert moments["mean"][0, 0] == pytest.approx(rows.mean(0, np.float64))


def test_the_oldest_row_gives_its_version() -> None:
    learner = make()
    chunk = make_chunk(learner)
    chunk.columns["version"][2:4, 1] = 5
    assert make_maker(learner)(chunk).columns["version"].item() == 5


def test_the_last_rows_of_an_agent_are_used_however_few() -> None:
    learner = make()
    maker, chunk = make_maker(learner), make_chunk(learner)
    short = {name: column[:3] for name, column in chunk.columns.items()}
    row = maker(replace(chunk, columns=short, overlap=0, tail=True))
    acted = int(np.count_nonzero(short["step_type"][:-1] != 2))
    assert (row.columns["extras/rows"].item(), row.tail) == (acted, False)
    [trained] = feed(learner, gradients_of(learner, [row]))
    assert trained.metrics["gradients"] == 1


def test_a_row_without_an_action_is_refused_by_replay() -> None:
    learner = make()
    maker, chunk = make_maker(learner), make_chunk(learner)
    none = {name: column[:1] for name, column in chunk.columns.items()}
    row = maker(replace(chunk, columns=none, overlap=0, tail=True))
    assert row.columns["extras/rows"].item() == 0
    assert GradientView().refusal(row) == "empty unroll"


def test_a_gradient_that_is_not_finite_is_refused_by_its_agent() -> None:
    learner = make()
    chunk = make_chunk(learner)
    chunk.columns["obs"][1, 1] = np.nan
    with pytest.raises(DataError, match=r"gradient of an unroll is not finite, with version 7"):
        make_maker(learner)(chunk)


# -- the source ------------------------------------------------------------------------------------


def test_gradients_come_one_by_one_with_their_versions() -> None:
    learner = make()
    maker = make_maker(learner)
    rows = [maker(make_chunk(learner, seed=seed)) for seed in range(3)]
    rows[1].columns["version"][:] = 4
    trained = feed(learner, gradients_of(learner, rows))
    assert [each.batch.origin.columns["version"].tolist() for each in trained] == [[7], [4], [7]]
    assert [each.metrics["gradients"] for each in trained] == [1, 2, 3]
    assert [(part.items, part.rows) for part in learner.flow.parts()] == [(3, 3)] * 3
    assert len(learner.pop_updates()) == 3


def test_gradients_of_another_length_are_refused() -> None:
    learner, other = make(), make(model={"hidden_sizes": [9]})
    row = make_maker(other)(make_chunk(other))
    with pytest.raises(DataError, match=r"gradient is torch.float32 \[\d+\], but .* \[\d+\]"):
        feed(learner, gradients_of(learner, [row]))
    # The next one is used.
    learner._is_fed = False
    assert feed(learner, gradients_of(learner, [make_maker(learner)(make_chunk(learner))]))


def test_a_gradient_that_is_not_finite_is_skipped_and_counted() -> None:
    learner = make()
    columns = gradients_of(learner, [make_maker(learner)(make_chunk(learner))])
    columns[GRADIENT][0, 3] = np.nan
    before = learner.network.hash()
    [trained] = feed(learner, columns)
    assert (trained.metrics["skipped"], trained.metrics["nan_updates"]) == (1.0, 1)
    assert learner.network.hash() == before


@pytest.mark.parametrize(
    ("source", "algorithm", "at", "words"),
    [
        (async_gradients, A3C, "learner", r"async_gradients\(learner\), but .*gradients_at is l"),
        (rollouts, A3C, "agent", r"rollouts\(learner\), but .* is agent, .* async_gradients\(lea"),
        (replay, A3C, "agent", r"replay\(learner\), but .*gradients_at is agent, .* to learner"),
        (experience, A3C, "agent", r"experience\(learner\), but .*gradients_at is agent"),
        (experience, DQN, "agent", r"gradients_at is agent, but .*type is UniformReplay: .* FIFO"),
    ],
)
def test_sources_and_the_place_of_gradients_go_together(
    source: Any, algorithm: Any, at: str, words: str
) -> None:
    learner = make(algorithm=A3C)
    learner.learner_config.gradients_at = at
    learner.learner_config.replay.type = algorithm.replay
    with pytest.raises(ConfigError, match=words):
        source(learner)


class Several(A3CLearner):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_optimizer("other", torch.nn.Linear(1, 1), 0.1)


def test_a_loss_must_name_all_optimizers() -> None:
    learner = make(Several)
    loss = learner.loss
    learner.loss = lambda batch: replace(loss(batch), total={"optimizer": loss(batch).total})
    source, batch = learner.flow.parts()[0], make_batch(DISCRETE)
    with pytest.raises(DataError, match=r"names the optimizers \['optimizer'\], .*'other'\]"):
        source.compute(batch)


# -- combining -------------------------------------------------------------------------------------


class Averaging(A3CLearner):
    def execution_plan(self) -> Flow:
        flow = async_gradients(self).batch(2).for_each(average_gradients())
        return flow.for_each(apply_gradients(self)).for_each(learn_moments(self.network))


def test_a_mean_of_gradients_has_the_versions_and_moments_of_all() -> None:
    changed: Any = {"model": {"normalize_obs": True}, "learning_rate": {"start": 0.0}}
    one, two = make(**copy.deepcopy(changed)), make(Averaging, **copy.deepcopy(changed))
    maker = make_maker(one)
    rows = [maker(make_chunk(one, seed=seed)) for seed in range(2)]
    rows[1].columns["version"][:] = 4
    feed(one, gradients_of(one, rows))
    [passed, trained] = feed(two, gradients_of(two, rows))
    assert passed is PASSED
    assert trained.batch.origin.columns["version"].tolist() == [7, 4]
    assert (trained.size, trained.metrics["gradients"]) == (2, 2)
    # Without a step size only the moments change.
    assert one.network.hash() == two.network.hash()
    assert one.network.normalizer.parts[0].count.item() == 2 * T * B


@pytest.mark.parametrize(("newest", "applied"), [(9, 1), (10, 0)])
def test_a_gradient_that_is_too_old_is_left_out_and_counted(
    newest: int, applied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make(replay={"evict_rule": {"max_version_lag": 2}})
    monkeypatch.setattr(type(learner), "version", newest)
    columns = gradients_of(learner, [make_maker(learner)(make_chunk(learner))])
    [item] = feed(learner, columns)
    assert (item is not PASSED) == bool(applied)
    counts = learner.checkpointed()["gradient_counts"].state_dict()
    assert counts == {"applied": applied, "stale": 1 - applied}


# -- delay compensation ----------------------------------------------------------------------------


def test_golden_compensation() -> None:
    gradient, now, then = (
        torch.tensor(each, dtype=torch.float64)
        for each in ([1.0, -2.0, 0.5], [0.5, 0.1, 0.0], [0.3, 0.4, 0.0])
    )
    found = compensate(gradient, now, then, 0.05)
    assert found.tolist() == pytest.approx([1.01, -2.06, 0.5], rel=1e-12)


def gradients(learner: Any, value: float, version: int) -> Gradients:
    size = learner.optimizers["optimizer"].size
    return Gradients(torch.full((size,), value), 1, version, {}, ("optimizer",))


def published(learner: Any, monkeypatch: pytest.MonkeyPatch, version: int, by: float) -> None:
    """Adds to all parameters, and publishes them."""
    learner.optimizers["optimizer"].parameters.add_(by)
    monkeypatch.setattr(type(learner), "version", version)


def test_gradients_are_corrected_for_the_updates_since(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    operator = compensate_delay(learner, 0.5, history=2)

    def corrected(value: float, version: int) -> Gradients:
        found: Gradients = operator(gradients(learner, value, version))
        return found

    published(learner, monkeypatch, 1, 0.0)
    assert corrected(2.0, 1).flat[:1].tolist() == [2.0]
    published(learner, monkeypatch, 2, 0.25)
    assert corrected(2.0, 1).flat[0].item() == pytest.approx(2.0 + 0.5 * 4.0 * 0.25, rel=1e-6)
    published(learner, monkeypatch, 3, 0.25)
    assert corrected(2.0, 2).flat[0].item() == pytest.approx(2.5, rel=1e-6)
    # Version 1 is not kept any more.
    gone = corrected(2.0, 1)
    assert (gone.flat[:1].tolist(), gone.metrics) == ([2.0], {"uncompensated": 1})


def test_the_weight_follows_the_mean_of_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make()
    operator = compensate_delay(learner, 0.5, adaptive=True)
    published(learner, monkeypatch, 1, 0.0)
    operator(gradients(learner, 1.0, 1))
    published(learner, monkeypatch, 2, 0.25)
    mean_square = 0.95 * 0.05 * 1.0 + 0.05 * 4.0
    expected = 2.0 + 0.5 / math.sqrt(mean_square + 1e-7) * 4.0 * 0.25
    assert operator(gradients(learner, 2.0, 1)).flat[0].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("weight", "history"), [(-0.1, 20), (0.1, 0)])
def test_wrong_compensations_are_refused(weight: float, history: int) -> None:
    with pytest.raises(ValueError, match=f"weight={weight:g}, history={history}"):
        compensate_delay(make(), weight, history=history)


def test_a_checkpoint_has_the_state_of_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Any = {"delay_compensation": {"weight": 0.5}}
    learner = make(**copy.deepcopy(changed))
    assert " -> compensate_delay(0.5) -> " in learner.flow.describe()
    maker = make_maker(learner)
    published(learner, monkeypatch, 7, 0.0)
    feed(learner, gradients_of(learner, [maker(make_chunk(learner))]))
    again = make(**copy.deepcopy(changed))
    load_flat(again.module_dict(), read_flat(learner.module_dict()))
    for name, state in again.checkpointed().items():
        state.load_state_dict(copy.deepcopy(learner.checkpointed()[name].state_dict()))
    monkeypatch.setattr(type(learner), "version", 8)
    for each in (learner, again):
        [trained] = feed(each, gradients_of(each, [maker(make_chunk(each, seed=1))]))
        assert (trained.metrics["gradients"], trained.metrics["uncompensated"]) == (2, 0)
    assert learner.network.hash() == again.network.hash()


def test_operators_of_a_user_see_gradients() -> None:
    """A filter by age is a line of a plan."""
    items = [gradients(make(), 1.0, version) for version in (3, 9, 5)]
    young = Operator("young", lambda item: 10 - item.version <= 5)
    assert [each.version for each in from_items(items).filter(young)] == [9, 5]


@pytest.mark.parametrize("count", [0, 2])
def test_no_rows_have_no_mean(count: int) -> None:
    items = [Gradients(torch.zeros(3), rows=0) for _ in range(count)]
    with pytest.raises(DataError, match=f"got {count} gradients of 0 rows"):
        average_gradients()(items)
