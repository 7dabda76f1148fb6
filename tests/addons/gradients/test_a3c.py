"""A3C: its plan, its settings, serial runs with exact accounts, PPO turned asynchronous."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from session.errors import ConfigError
from surreal_like import train
from surreal_like.addons.gradients.a3c import A3C
from surreal_like.addons.gradients.replay import GradientReplay
from surreal_like.algorithm.on_policy import check_synchronous
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.network.head import StateGaussianHead, make_policy_head
from tests.surreal_like.algorithm.unrolls import BOX, DISCRETE, configs, play


def make(learner: dict[str, Any] | None = None, **algo: Any) -> Any:
    given = {"model": {"hidden_sizes": [8]}, **(learner or {})}
    return A3C.learner(**configs(A3C, learner=given, **algo))


@pytest.mark.parametrize(
    ("learner", "algo", "expected"),
    [
        ({}, {}, "async_gradients -> apply_gradients -> learn_moments"),
        (
            {"gradients_at": "learner"},
            {},
            "rollouts -> compute_gradients -> apply_gradients -> learn_moments",
        ),
        (
            {},
            {"delay_compensation": {"weight": 0.04, "adaptive": True}},
            "async_gradients -> compensate_delay(0.04, adaptive) -> apply_gradients"
            " -> learn_moments",
        ),
    ],
)
def test_the_plan(learner: dict[str, Any], algo: dict[str, Any], expected: str) -> None:
    assert make(learner, **algo).flow.describe() == expected


@pytest.mark.parametrize(
    ("learner", "algo", "words"),
    [
        ({"model": {"normalize_values": True}}, {}, r"normalize_values is true, but gradients"),
        ({"model": {"variance": "stat"}}, {}, r"model.variance is 'stat' .*, or state"),
        (
            {"model": {"variance": "state", "policy": "beta"}},
            {},
            r"variance is 'state' and policy 'beta', expected '', or state for a gaussian",
        ),
    ],
)
def test_wrong_settings_are_refused(
    learner: dict[str, Any], algo: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make(learner, **algo)


@pytest.mark.parametrize(("batch_size", "fits"), [(2, True), (3, False)])
def test_synchronous_agents_make_one_gradient_each(batch_size: int, fits: bool) -> None:
    given = configs(A3C, learner={"replay": {"batch_size": batch_size}}, synchronous=True)
    given["session_config"].agent.num, given["env_config"].num_envs = 2, 8
    if fits:
        check_synchronous(**given, kind=GradientReplay)
        return
    with pytest.raises(ConfigError, match=r"3 gradients is more than 2 agents x 1 .*= 2 gradients"):
        check_synchronous(**given, kind=GradientReplay)


def test_the_variance_comes_from_the_state() -> None:
    head = make_policy_head(4, BOX, variance="state")
    assert isinstance(head, StateGaussianHead)
    features = torch.randn(5, 3, 4)
    policy = head(features)
    assert policy.mean.shape == policy.log_std.shape == (5, 3, 2)
    assert policy.log_std[0, 0, 0] != policy.log_std[1, 0, 0]
    actions = policy.sample()
    again = head.of(policy.columns())
    assert torch.equal(again.log_prob(actions), policy.log_prob(actions))
    assert not isinstance(make_policy_head(4, DISCRETE, variance="state"), StateGaussianHead)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["learner_config.replay.replay_proportion=0.5"], r"replay_proportion is 0.5, but grad"),
        (["learner_config.gradients_at=both"], r"gradients_at is 'both', expected one of learner"),
        (["learner_config.algo.value_weight=-1"], r"value_weight is -1.0, expected 0 or more"),
        (
            ["learner_config.algo.delay_compensation.weight=-1"],
            r"weight is -1.0, expected 0 or more",
        ),
        (["learner_config.algo.delay_compensation.history=0"], r"history is 0, expected 1 or more"),
        (["learner_config.parts=[{part: own}]"], r"agents make the gradients.*leave parts empty"),
    ],
)
def test_settings_are_refused_before_a_run(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(read_experiment(None, overrides, algorithm="a3c", env_name="toy:bandit"))


def test_it_is_suggested_where_another_algorithm_refuses_actions() -> None:
    with pytest.raises(ConfigError, match=r"Pendulum-v1 has continuous .*: try a3c, bc, ddpg"):
        resolve(read_experiment(None, algorithm="dqn", env_name="gym:Pendulum-v1"))


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("ppo", r"rollouts\(learner\), but .*gradients_at is agent, .* async_gradients\(learner\)"),
        ("dqn", r"gradients_at is agent, but .*type is UniformReplay"),
    ],
)
def test_other_plans_do_not_take_gradients_of_agents(algorithm: str, words: str) -> None:
    overrides = ["learner_config.gradients_at=agent"]
    with pytest.raises(ConfigError, match=words):
        resolve(read_experiment(None, overrides, algorithm=algorithm, env_name="toy:bandit"))


# -- serial runs -----------------------------------------------------------------------------------

RATE = {
    "learner_config.algo.learning_rate": {"kind": "constant", "start": 0.02},
    "learner_config.model.hidden_sizes": [16],
    "env_config.num_envs": 8,
    "session_config.sender.flush_iteration": 8,
    "session_config.evaluator.interval_seconds": 0.2,
}


def played(folder: Path, algorithm: Any = "a3c", env: str = "toy:bandit", **changed: Any) -> Any:
    overrides = {**RATE, "session_config.stop": {"env_steps": 4000, "eval_episodes": 20}}
    overrides |= {key.replace("__", "."): value for key, value in changed.items()}
    run = train(algorithm=algorithm, env=env, overrides=overrides, launcher="serial", folder=folder)
    assert run.result["status"] == "stopped"
    rows = run.result["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]
    return run


@pytest.mark.slow
def test_gradients_have_all_that_rows_have(tmp_path: Path) -> None:
    run = played(tmp_path / "run")
    result, line = run.result, run.progress()[-1]
    # One row for each unroll of 8 steps of 8 environments, and the last of each agent.
    counted = result["experience"]
    assert counted["dropped"] <= 2
    assert counted["pushed"] == pytest.approx(result["env_steps"] / 32, abs=8)
    assert line["plan"]["rows_taken"] == line["plan"]["rows_trained"] == result["iterations"]
    assert line["learn"]["gradients"] == result["iterations"]
    assert line["learn"]["stale"] == 0
    assert 0 <= result["lag"]["max_versions"] <= 20
    assert result["best_eval"]["mean_return"] == 1.0


@pytest.mark.slow
def test_one_seed_gives_one_run(tmp_path: Path) -> None:
    words: dict[str, Any] = {"session_config__agent__num": 2}
    one, two = (played(tmp_path / name, **words) for name in "ab")
    files = [each.folder / "checkpoints" for each in (one, two)]
    newest = [max(each.rglob("params.safetensors")).read_bytes() for each in files]
    assert newest[0] == newest[1]


@pytest.mark.slow
def test_without_lag_gradients_of_one_agent_make_the_parameters_of_its_unrolls(
    tmp_path: Path,
) -> None:
    words: dict[str, Any] = {
        "learner_config__algo__synchronous": True,
        "session_config__agent__num": 1,
        "session_config__stop": {"iterations": 40, "eval_episodes": 20},
    }
    one = played(tmp_path / "one", **words)
    two = played(
        tmp_path / "two",
        learner_config__gradients_at="learner",
        learner_config__replay={"batch_size": 8, "capacity": 512},
        **words,
    )
    read = [
        max((each.folder / "checkpoints" / "learner").rglob("params.safetensors")).read_bytes()
        for each in (one, two)
    ]
    assert read[0] == read[1]


ASYNCHRONOUS = """
from surreal_like.algorithm.ppo import PPO
from surreal_like.dataflow import (
    apply_gradients, async_gradients, compute_advantages, standardize
)

def asynchronous(learner):
    before = [compute_advantages(learner, learner.algo.gae_lambda), standardize("advantages")]
    return async_gradients(learner, before).for_each(apply_gradients(learner))

AsyncPPO = PPO.with_updates(
    "AsyncPPO", execution_plan=asynchronous, default_config={"gradients_at": "agent"}
)
"""


@pytest.mark.slow
def test_ppo_becomes_asynchronous_by_its_plan(tmp_path: Path) -> None:
    (tmp_path / "async_ppo.py").write_text(ASYNCHRONOUS)
    run = played(
        tmp_path / "run",
        str(tmp_path / "async_ppo.py"),
        learner_config__replay={"batch_size": 1, "capacity": 64},
        learner_config__algo__learning_rate={"kind": "constant", "start": 0.01},
        session_config__agent__num=2,
    )
    assert run.result["best_eval"]["mean_return"] > 0.9
    assert {"kl", "clip_fraction", "gradients"} <= run.progress()[-1]["learn"].keys()


@pytest.mark.slow
def test_memory_continuous_actions_and_moments_learn(tmp_path: Path) -> None:
    """Gradients of a policy with a memory, and of one whose variance depends on the state."""
    recall = play(
        tmp_path / "recall",
        "a3c",
        "toy:recall",
        env_steps=40_000,
        goal=0.9,
        learner_config__algo__learning_rate={"kind": "constant", "start": 0.005},
        learner_config__algo__optimizer={"rule": "adam", "epsilon": 1e-5},
        learner_config__model__memory="gru",
        learner_config__replay__batch_size=1,
        env_config__env_args={"arms": 2, "delay": 2},
    )
    assert recall.result["goal_met"] is True
    target = play(
        tmp_path / "target",
        "a3c",
        "toy:target",
        env_steps=40_000,
        goal=-1.0,
        learner_config__algo__learning_rate={"kind": "constant", "start": 0.005},
        learner_config__algo__optimizer={"rule": "adam", "epsilon": 1e-5},
        learner_config__algo__reward_clip=0.0,
        learner_config__model__variance="state",
        learner_config__model__normalize_obs=True,
        learner_config__replay__batch_size=1,
    )
    assert target.result["goal_met"] is True
