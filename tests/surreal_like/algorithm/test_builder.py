"""Algorithms built of functions: which part each takes, which stay, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.errors import ConfigError
from surreal_like import build_algorithm, train
from surreal_like.agent.agent import AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.builder import ActorCritic
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.ppo import PPO
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.algorithm.sac import SAC
from surreal_like.dataflow import Flow, Loss, replay, rollouts, train_one_step
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.learner.optimizer import Optimizer
from surreal_like.loss.policy import masked_mean
from surreal_like.network.actor_critic import ActorCritic as Network
from tests.add_ons import needs
from tests.docs.examples import ROOT, blocks
from tests.surreal_like.algorithm.unrolls import DISCRETE, configs, make_batch


def loss(learner: Any, batch: Any) -> torch.Tensor:
    log_prob, _, values, _ = learner.evaluate_actions(batch)
    return masked_mean(values.square() - log_prob, batch.mask)


def learner_of(algorithm: type[Algorithm], **changes: Any) -> Any:
    torch.manual_seed(0)
    learner: Any = algorithm.learner(**configs(algorithm, **changes))
    return learner


def agent_of(algorithm: type[Algorithm], mode: AgentMode = AgentMode.training) -> Any:
    return algorithm.agent(**configs(algorithm), agent_id=0, agent_mode=mode)


def test_only_a_loss_is_needed() -> None:
    built = build_algorithm("Mine", loss)
    learner = learner_of(built)
    before = torch.cat([p.detach().flatten() for p in learner.network.parameters()])
    metrics = learner.learn(make_batch(DISCRETE))
    after = torch.cat([p.detach().flatten() for p in learner.network.parameters()])
    assert {"loss", "grad_norm", "learning_rate"} <= metrics.keys()
    assert not torch.equal(before, after)
    assert built.__module__ == __name__
    assert built.__mro__[1] is ActorCritic
    assert find_algorithm("tests.surreal_like.algorithm.test_builder:Named") is Named


Named = build_algorithm("Named", loss)


@pytest.mark.parametrize("base", [ActorCritic, PPO, DQN])
def test_only_the_part_that_is_given_is_another_one(base: type[Algorithm]) -> None:
    built = build_algorithm("Mine", loss, base=base)
    assert built.agent is base.agent
    assert built.replay is base.replay
    assert built.actions is base.actions
    assert built.default_config() == base.default_config()
    assert built.learner.execution_plan is base.learner.execution_plan
    assert built.learner.loss is loss
    other = built.with_updates(postprocess_fn=lambda agent, chunk: chunk)
    assert other.__name__ == "Mine"
    assert other.learner is built.learner
    assert other.agent is not base.agent
    assert built.agent is base.agent
    assert base.learner.loss is not loss


def test_defaults_are_merged_over_those_of_the_base() -> None:
    given = {"algo": {"learning_rate": 5e-3, "mine": 3}, "replay": {"batch_size": 4}}
    built = build_algorithm("Mine", loss, base=PPO, default_config=given)
    twice = built.with_updates("Twice", default_config={"algo": {"mine": 4}})
    ppo, mine = PPO.default_config(), built.default_config()
    assert (mine.algo.learning_rate.kind, mine.algo.learning_rate.start) == ("constant", 5e-3)
    assert (mine.replay.batch_size, mine.replay.capacity) == (4, ppo.replay.capacity)
    assert (mine.algo.mine, twice.default_config().algo.mine) == (3, 4)
    assert twice.default_config().replay.batch_size == 4


def test_hooks_are_called_in_their_order_once_each() -> None:
    calls: list[str] = []

    def before_init(learner: Any) -> None:
        calls.append(f"network {hasattr(learner, 'network')}")

    def before_loss_init(learner: Any) -> None:
        calls.append(f"network {hasattr(learner, 'network')}, optimizers {len(learner.optimizers)}")

    def after_init(learner: Any) -> None:
        calls.append(f"penalty {hasattr(learner, 'kl_penalty')}")

    parts: dict[str, Any] = {
        "before_init": before_init,
        "before_loss_init": before_loss_init,
        "after_init": after_init,
    }
    built = build_algorithm("Mine", base=PPO, **parts)
    expected = ["network False", "network True, optimizers 0", "penalty True"]
    assert learner_of(built).flow is not None
    assert calls == expected
    calls.clear()
    assert learner_of(built.with_updates(after_init=lambda learner: calls.append("other"))).flow
    assert calls == [*expected[:2], "other"]


def test_statistics_follow_the_loss_and_join_the_metrics() -> None:
    order: list[str] = []

    def loss_fn(learner: Any, batch: Any) -> torch.Tensor:
        order.append("loss")
        return loss(learner, batch)

    def stats(learner: Any, batch: Any) -> dict[str, float]:
        order.append("stats")
        return {"mine": 7.0}

    learner = learner_of(build_algorithm("Mine", loss_fn, stats_fn=stats))
    assert learner.learn(make_batch(DISCRETE))["mine"] == 7.0
    assert order == ["loss", "stats"]


def test_gradients_are_changed_before_they_are_clipped() -> None:
    built = build_algorithm("Mine", loss, gradients_fn=lambda learner, flat: torch.zeros_like(flat))
    learner = learner_of(built)
    before = [p.detach().clone() for p in learner.network.parameters()]
    assert learner.learn(make_batch(DISCRETE))["grad_norm"] == 0.0
    after = list(learner.network.parameters())
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_an_optimizer_takes_the_place_of_the_usual_one() -> None:
    made: list[Optimizer] = []

    def optimizer(learner: Any) -> Optimizer:
        made.append(Optimizer(learner.network, learning_rate=0.5, rule="rmsprop_tf"))
        return made[0]

    learner = learner_of(build_algorithm("Mine", loss, optimizer_fn=optimizer))
    assert list(learner.optimizers.values()) == made
    assert learner.learn(make_batch(DISCRETE))["learning_rate"] == 0.5
    assert learner.saveables()["optimizer"] is made[0]


def test_one_network_is_built_for_agent_and_learner() -> None:
    def model(learner_config: Config, env_config: Config) -> Network:
        wider = {**learner_config.model, "hidden_sizes": [5]}
        return Network(env_config.obs_spec, env_config.action_spec, wider)

    built = build_algorithm("Mine", loss, make_model=model)
    shapes = [
        {name: each.shape for name, each in part.network.named_parameters()}
        for part in (learner_of(built), agent_of(built))
    ]
    assert shapes[0] == shapes[1]
    assert torch.Size([5, 4]) in shapes[0].values()
    learner_of(built).learn(make_batch(DISCRETE))
    with pytest.raises(ConfigError, match="SACLearner builds networks of its own"):
        build_algorithm("Mine", base=SAC, make_model=model)


def test_actions_and_their_extras() -> None:
    def act(agent: Any, obs: Any) -> Any:
        return np.zeros(len(obs), np.int64), {"a": np.ones(len(obs))}

    def extras(agent: Any, obs: Any) -> dict[str, Any]:
        return {"b": np.ones(len(obs))}

    obs = torch.zeros(2, 4)
    built = build_algorithm("Mine", loss, action_fn=act, extra_action_fn=extras)
    assert agent_of(built).act(obs)[1].keys() == {"a", "b"}
    assert agent_of(built, AgentMode.eval_deterministic).act(obs)[1].keys() == {"a"}
    only = build_algorithm("Mine", loss, extra_action_fn=extras)
    assert agent_of(only).act(obs)[1].keys() == {"logits", "b"}
    assert isinstance(agent_of(only, AgentMode.eval_deterministic).act(obs), np.ndarray)


class Doubled:
    def stats(self, batch: Any) -> dict[str, float]:
        return {"from_mixin": 1.0}


class Zero:
    def act(self, obs: Any) -> Any:
        actions, extras = super().act(obs)  # type: ignore[misc]
        return np.zeros_like(actions), extras


def test_mixins_override_the_base() -> None:
    parts: dict[str, Any] = {"learner_mixins": [Doubled], "agent_mixins": [Zero]}
    built = build_algorithm("Mine", loss, **parts)
    assert learner_of(built).learn(make_batch(DISCRETE))["from_mixin"] == 1.0
    assert not agent_of(built).act(torch.randn(50, 4))[0].any()


def test_a_plan_and_a_callable_object_are_parts_too() -> None:
    def plan(learner: Any) -> Flow:
        return rollouts(learner).for_each(train_one_step(learner, num_sgd_iter=2))

    def weighted(weight: float, learner: Any, batch: Any) -> Loss:
        return Loss(weight * loss(learner, batch), {"weight": weight})

    whole = partial(weighted, 2.0)
    whole.__module__ = __name__
    built = build_algorithm("Mine", whole, execution_plan=plan)
    learner = learner_of(built)
    assert learner.flow.describe() == "rollouts -> train_one_step(2 x 1)"
    assert learner.learn(make_batch(DISCRETE))["weight"] == 2.0


def test_a_plan_that_extends_itself_in_place_of_that_of_its_base_is_refused() -> None:
    def itself(learner: Any) -> Flow:
        flow: Flow = learner.execution_plan()
        return flow

    def of_base(learner: Any) -> Flow:
        return DQN.learner.execution_plan(learner).for_each(lambda item: item)

    with pytest.raises(
        ConfigError, match=r"calls itself, .* write DQN\.learner\.execution_plan\(learner"
    ):
        assert learner_of(build_algorithm("Mine", base=DQN, execution_plan=itself)).flow
    flow = learner_of(build_algorithm("Mine", base=DQN, execution_plan=of_base)).flow
    assert flow.describe().endswith("update_priorities -> <lambda>")


@pytest.mark.parametrize(
    ("name", "parts", "words"),
    [
        ("My PPO", {}, "called 'My PPO', expected a name such as MyPPO"),
        ("Mine", {"loss_fm": loss}, "unknown part 'loss_fm': did you mean loss_fn"),
        ("Mine", {"nothing": 1}, "unknown part 'nothing': there are loss_fn, execution_plan"),
        ("Mine", {"loss_fn": lambda batch: 1}, r"loss_fn of Mine takes .*\(learner, batch\)"),
        ("Mine", {"execution_plan": lambda: 1}, r"expected a function of \(learner\)"),
        ("Mine", {"postprocess_fn": 3}, r"of Mine is 3, expected a function of \(agent, chunk\)"),
        ("Mine", {"default_config": 3}, "default_config of Mine is 3, expected a mapping"),
        ("Mine", {"learner_mixins": [3]}, r"learner_mixins of Mine is \[3\], expected classes"),
        ("Mine", {"base": "dqn"}, "base of Mine is 'dqn', expected a class such as PPO"),
        ("Mine", {"base": SAC, "loss_fn": loss}, "would never be called: .* SACLearner"),
    ],
)
def test_what_is_refused_when_it_is_built(name: str, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        build_algorithm(name, **parts)
    assert "\n" not in str(refused.value)


def test_settings_that_do_not_fit_are_refused_before_a_run() -> None:
    def check(learner_config: Config, env_config: Config, session_config: Config) -> None:
        if learner_config.algo.gamma > 0.9:
            raise ConfigError("gamma is above 0.9")

    module = ModuleType("checked")
    checked = build_algorithm("Checked", loss, validate_config=check)
    vars(module)["Checked"] = checked
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "checked", module)
        for gamma, fits in ((0.8, True), (0.95, False)):
            words = [f"learner_config.algo.gamma={gamma}"]
            user = read_experiment(None, words, algorithm="checked:Checked", env_name="toy:chain")
            if fits:
                resolve(user)
                continue
            with pytest.raises(ConfigError, match=r"gamma is above 0\.9"):
                resolve(user)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("returns", [False, True], ids=["rewards", "returns"])
def test_returns_make_the_loss_of_the_document_learn(tmp_path: Path, returns: bool) -> None:
    document = ROOT / "docs" / "your_own_algorithm.md"
    text = next(block.text for block in blocks(document) if block.file == "pg.py")
    if not returns:
        text = text.replace("    postprocess_fn=returns,\n", "")
        text = text.replace('batch.extras["advantages"]', "batch.rewards")
    (tmp_path / "pg.py").write_text(text)
    run = train(
        algorithm=str(tmp_path / "pg.py"),
        env="gym:CartPole-v1",
        launcher="serial",
        seed=1,
        folder=tmp_path / "run",
        overrides=["session_config.stop={env_steps: 60000}"],
    )
    mean = run.result["train"]["mean_return_100"]
    assert mean > 150 if returns else mean < 60


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        (ActorCritic, "uniform_replay:UniformReplay"),
        (PPO, "prioritized_replay:PrioritizedReplay"),
        pytest.param(ActorCritic, "sequence_replay:SequenceReplay", marks=needs("r2d2")),
        (DQN, "fifo_replay:FIFOReplay"),
        pytest.param(DQN, "sequence_replay:SequenceReplay", marks=needs("r2d2")),
    ],
)
def test_a_replay_of_another_kind_has_its_own_defaults(base: type[Algorithm], kind: str) -> None:
    place = f"surreal_like.replay.{kind}"
    built = build_algorithm("Other", loss, base=base, replay=place)
    assert built.default_config().replay == {"type": place}
    again = built.with_updates("Again", default_config={"replay": {"batch_size": 7}})
    assert again.default_config().replay == {"type": place, "batch_size": 7}


def test_a_replay_of_the_same_kind_keeps_the_defaults_of_the_base() -> None:
    place = "PrioritizedReplay"
    built = build_algorithm("Other", base=DQN, replay=place)
    assert built.default_config().replay.samples_per_insert == 32.0


def uniform_plan(learner: Any) -> Flow:
    return replay(learner).for_each(train_one_step(learner))


def first_values(learner: Any, batch: Any) -> torch.Tensor:
    _, values = learner.network(batch.obs)
    total: torch.Tensor = values.square().mean()
    return total


OfRows = build_algorithm(
    "OfRows",
    first_values,
    replay="UniformReplay",
    execution_plan=uniform_plan,
)


def test_the_usual_base_learns_from_rows_without_further_settings() -> None:
    resolve(read_experiment(None, [], algorithm=f"{__name__}:OfRows", env_name="toy:chain"))
