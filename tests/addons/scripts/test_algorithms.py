"""Algorithms as objects: the run that `train` makes, acting, saving; names of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import surreal_like
from session.config.defaults import BASE_CONFIG
from session.config.merge import paths
from session.errors import RunError, UsageError
from session.folder import RunFolder
from surreal_like import DQN, PPO, evaluate, evaluate_policy, load_policy, make_policy, train
from surreal_like.addons.scripts import algorithms
from surreal_like.addons.scripts.algorithms import ARGUMENTS, Trainable
from surreal_like.algorithm.catalog import describe_algorithms, name_of
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.experiment.resolve import defaults
from surreal_like.other_libraries import KEYWORDS_ELSEWHERE
from surreal_like.run.train import Run
from tests.addons.scripts.test_trainer import OVERRIDES, digest

pytestmark = pytest.mark.usefixtures("quick")

QUICK = OVERRIDES | {"session_config.stop.eval_episodes": 4}


def chain(folder: Path, **settings: Any) -> Trainable:
    given: dict[str, Any] = {
        "launcher": "serial",
        "seed": 3,
        "overrides": QUICK,
        "folder": folder,
    } | settings
    made: Trainable = DQN("toy:chain", **given)
    return made


@pytest.mark.parametrize("name", describe_algorithms())
def test_each_algorithm_has_a_class_that_acts_before_it_learns(name: str) -> None:
    found, entry = find_algorithm(name), describe_algorithms()[name]
    made = getattr(surreal_like, found.__name__)
    assert issubclass(made, found)
    assert name_of(made) == name
    env = "CartPole-v1" if "discrete" in entry.actions else "Pendulum-v1"
    model = made(env, seed=1)
    action, state = model.predict([0.1] * (4 if env == "CartPole-v1" else 3))
    assert (state is None) == (name != "r2d2")
    assert model.policy.config.env_config.env_name == f"gym:{env}"
    spec = model.policy.config.env_config.action_spec
    assert list(action.shape) == ([] if spec.type == "discrete" else spec.dim)


def test_it_acts_at_first_as_a_new_policy_of_the_same_settings(tmp_path: Path) -> None:
    settings = QUICK | {"session_config.seed": 3, "learner_config.algo.gamma": 0.9}
    there = make_policy("dqn", env="toy:chain", overrides=settings)
    here = chain(tmp_path, gamma=0.9).policy
    assert here.config.fingerprint() == there.config.fingerprint()
    weights = there.get_weights()
    assert all((weights[name] == x).all() for name, x in here.get_weights().items())


@pytest.mark.slow
def test_it_is_the_run_that_train_makes_and_goes_on(tmp_path: Path) -> None:
    model = chain(tmp_path / "one", learning_rate=2e-3)
    assert model.learn(300) is model
    assert model.folder == tmp_path / "one"
    words = {
        **QUICK,
        "learner_config.algo.learning_rate": 2e-3,
        "session_config.stop.env_steps": 300,
    }
    folder = tmp_path / "other"
    given: dict[str, Any] = {"overrides": words, "launcher": "serial", "folder": folder, "seed": 3}
    ended = train(algorithm="dqn", env="toy:chain", **given)
    assert digest(tmp_path / "one") == digest(folder)
    steps = model.num_timesteps
    assert steps == ended.result["env_steps"] >= 300
    assert RunFolder(folder).read_config().algorithm == "dqn"

    before = model.policy
    model.learn(100)
    assert model.num_timesteps >= steps + 100
    assert model.policy is not before
    assert RunFolder(tmp_path / "one").read_config().run.part == 2


@pytest.mark.slow
def test_it_is_saved_loaded_evaluated_and_goes_on_there(tmp_path: Path) -> None:
    model = chain(tmp_path / "run").learn(200)
    saved = model.save(tmp_path / "saved")
    assert not (saved / "alive").exists()
    again = DQN.load(saved, launcher="serial")
    obs = [[0.0] * 10, [1.0] * 10]
    obs = [row[: model.policy.config.env_config.obs_spec.dim[0]] for row in obs]
    ours, theirs = (each.predict(obs)[0] for each in (model, again))
    assert (ours == theirs).all()
    assert (load_policy(saved)(obs)[0] == ours).all() or again.policy.checkpoint != "best"
    mean, std = evaluate_policy(again, n_eval_episodes=6, seed=1)
    played = evaluate(saved, episodes=6, seed=1, checkpoint=again.policy.checkpoint)
    assert (mean, std) == (played["mean_return"], played["std_return"])
    steps = again.num_timesteps
    assert steps == model.num_timesteps
    again.learn(100)
    assert again.num_timesteps >= steps + 100
    assert model.num_timesteps == steps


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PPO("MlpPolicy", "CartPole-v1"), r"the environment: PPO\('CartPole-v1'\)"),
        (lambda: PPO("CnnPolicy"), r"learner_config\.model describes the network"),
        (lambda: PPO("x", n_steps=3), r"'n_steps'; it is session_config\.sender\.flush_iteration"),
        (lambda: PPO("x", verbose=1), r"'verbose'; it is watch, an observer .* here"),
        (lambda: PPO(cast(Any, object())), r"env is an instance of object, .* give the class"),
        (lambda: PPO("x", gama=0.9), r"'gama'; .* did you mean gamma\?"),
        (lambda: PPO("x", huber_kappa=1.0), r"PPO has no setting 'huber_kappa'"),
        (lambda: PPO("x").save("y"), r"this PPO has not learned yet: call learn"),
        (lambda: evaluate_policy(PPO("x")), r"this PPO has not learned yet: call learn"),
        (lambda: evaluate_policy(PPO("x"), cast(Any, "x")), r"leave env out"),
        (lambda: PPO.load("nowhere"), r"nowhere is not a run folder"),
    ],
)
def test_what_is_typed_for_another_library_is_refused_with_our_name(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.slow
def test_a_run_of_another_algorithm_and_a_full_folder_are_refused(tmp_path: Path) -> None:
    model = chain(tmp_path / "run").learn(100)
    with pytest.raises(UsageError, match=r"is a run of dqn: load it by DQN\.load$"):
        PPO.load(tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(
        UsageError, match=r"full is not empty: save to another folder, or use .*run"
    ):
        model.save(tmp_path / "full")
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"status": "failed", "reason": "no room"}, RunError),
        ({"status": "interrupted", "reason": "interrupted"}, KeyboardInterrupt),
    ],
)
def test_a_run_that_does_not_end_well_is_an_error_and_stays_known(
    result: dict[str, Any], error: type[BaseException], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(algorithms, "train", lambda **given: Run(tmp_path, result))
    model = chain(tmp_path)
    with pytest.raises(error, match="no room" if error is RunError else None):
        model.learn(10)
    assert model.folder == tmp_path


def test_each_name_of_another_library_names_something_here() -> None:
    known = {path for name in ("ppo", "dqn") for path in paths(defaults(name))} | {
        *paths(BASE_CONFIG)
    }
    ours = {each.partition(",")[0] for each in KEYWORDS_ELSEWHERE.values()}
    assert ours - {*ARGUMENTS} <= known
    assert {*ARGUMENTS} <= {*inspect.signature(train).parameters}


def test_a_changed_algorithm_trains_too() -> None:
    assert issubclass(Mine, Trainable)
    assert name_of(Mine) == "tests.addons.scripts.test_algorithms:Mine"
    model = Mine("CartPole-v1", gae_lambda=0.9)
    assert model.predict([0.0] * 4)[1] is None
    assert model.policy.config.algorithm == name_of(Mine)


def stats(learner: Any, batch: Any) -> dict[str, float]:
    return {}


Mine = PPO.with_updates("Mine", stats_fn=stats)
