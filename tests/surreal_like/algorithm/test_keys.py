"""The values of an algorithm's own keys are checked against their ranges and choices."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from session.config import Config, Key
from session.config.config import keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.errors import ConfigError
from surreal_like.algorithm.builder import build_algorithm
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.ppo import PPO
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import defaults, resolve
from tests.add_ons import needs

# Their numbers may be below 0.
BELOW_0 = {"v_min", "v_max", "log_std", "target_entropy"}


@cache
def keys(name: str) -> dict[str, Key]:
    return keys_of(defaults(name).extend(BASE_CONFIG, abstract=True))


def nested(key: str, value: object) -> Config:
    for part in reversed(key.split(".")):
        value = {part: value}
    return Config(value)


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("ppo", "algo.num_sgd_iter", 0, "expected 1 or more"),
        ("ppo", "algo.minibatches", 0, "expected 1 or more"),
        ("ppo", "algo.clip.start", -0.1, "expected 0 or more"),
        ("ppo", "algo.normalize_advantages_per", "row", "expected one of batch, minibatch"),
        ("ppo", "algo.gae_lambda", 1.5, "expected 0 to 1"),
        ("ppo", "algo.kl.target", 0.0, "expected more than 0"),
        ("ppo", "algo.kl.stop", -1.0, "expected 0 or more"),
        ("ppo", "algo.adaptive_learning_rate.kl", -1.0, "expected 0 or more"),
        ("ppo", "algo.learning_rate.start", -1.0, "expected 0 or more"),
        ("ppo", "algo.learning_rate.steps", 0, "expected 1 or more"),
        ("impala", "algo.vtrace_lambda", 1.1, "expected 0 to 1"),
        ("impala", "algo.clip_c", 0.0, "expected more than 0"),
        ("impala", "algo.clip_rho", -1.0, "expected 0 or more"),
        ("impala", "algo.optimizer.rule", "sgd", "expected one of adam, rmsprop_tf"),
        ("impala", "algo.optimizer.epsilon", 0.0, "expected more than 0"),
        pytest.param(
            "a3c", "algo.optimizer.epsilon", 0.0, "expected more than 0", marks=needs("gradients")
        ),
        ("ppo", "algo.adam_epsilon", 0.0, "expected more than 0"),
        ("dqn", "algo.adam_epsilon", 0.0, "expected more than 0"),
        ("pqn", "algo.adam_epsilon", 0.0, "expected more than 0"),
        ("ddpg", "algo.policy_delay", 0, "expected 1 or more"),
        ("td3", "algo.policy_delay", 0, "expected 1 or more"),
        ("ddpg", "algo.target_noise", -0.1, "expected 0 or more"),
        ("ddpg", "algo.noise.kind", "pink", "expected one of gaussian, ou"),
        ("ddpg", "algo.noise.sigma", -0.1, "expected 0 or more"),
        ("ddpg", "algo.noise.theta", 0.0, "expected above 0, at most 1"),
        ("ddpg", "algo.tau", 1.5, "expected above 0, at most 1"),
        ("sac", "algo.temperature.start", 0.0, "expected more than 0"),
        ("dqn", "algo.huber_kappa", -1.0, "expected 0 or more"),
        ("dqn", "algo.distribution.kind", "c51", "expected one of none, categorical, quantile"),
        ("dqn", "algo.distribution.atoms", 1, "expected 2 or more"),
        ("dqn", "algo.distribution.quantiles", 0, "expected 1 or more"),
        ("dqn", "algo.distribution.kappa", -1.0, "expected 0 or more"),
        ("dqn", "algo.epsilon.end", 1.5, "expected 0 to 1"),
        ("dqn", "algo.epsilon.kind", "cubic", "expected one of constant, linear, exponential"),
        ("dqn", "algo.target.period", 0, "expected 1 or more"),
        ("dqn", "model.noisy", -0.1, "expected 0 or more"),
        pytest.param("r2d2", "algo.rescale", -1.0, "expected 0 or more", marks=needs("r2d2")),
        pytest.param("r2d2", "algo.n_step", 0, "expected 1 or more", marks=needs("r2d2")),
        ("dqn", "algo.gamma", 1.1, "expected 0 to 1"),
        ("dqn", "algo.reward_clip", -1.0, "expected 0 or more"),
        ("dqn", "algo.normalized_reward_clip", -1.0, "expected 0 or more"),
        ("dqn", "algo.reward_scale", 0.0, "expected more than 0"),
        ("dqn", "replay.min_size", -1, "expected 0 or more"),
        ("dqn", "replay.samples_per_insert", -1.0, "expected 0 or more"),
        ("dqn", "replay.tolerance", -1.0, "expected 0 or more"),
        ("dqn", "replay.priority.alpha", 1.5, "expected 0 to 1"),
        ("dqn", "replay.priority.epsilon", 0.0, "expected more than 0"),
        ("dqn", "replay.replay_shards", 0, "expected 1 or more"),
        pytest.param("r2d2", "replay.batch_size", 0, "expected 1 or more", marks=needs("r2d2")),
        ("impala", "replay.evict_rule.max_version_lag", -1, "expected 0 or more"),
    ],
)
def test_a_value_is_refused(name: str, key: str, value: Any, words: str) -> None:
    path = f"learner_config.{key}"
    with pytest.raises(ConfigError) as error:
        check_values(nested(path, value), keys(name))
    assert str(error.value).startswith(f"{path} is {value!r}, {words}")


@pytest.mark.parametrize(("widths", "place"), [([64, 0], 1), ([-1], 0)])
@pytest.mark.parametrize("key", ["hidden_sizes", "head_sizes"])
def test_a_wrong_width_is_named_by_its_place(key: str, widths: list[int], place: int) -> None:
    path = f"learner_config.model.{key}"
    with pytest.raises(ConfigError) as error:
        check_values(nested(path, widths), keys("dqn"))
    assert str(error.value) == f"{path}[{place}] is {widths[place]}, expected 1 or more"


@pytest.mark.parametrize("name", list_algorithms())
def test_no_number_below_0_is_accepted_without_a_meaning(name: str) -> None:
    config = {"learner_config": defaults(name).learner_config}
    for key, value in leaves(config).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and key.rpartition(".")[2] not in BELOW_0:
            with pytest.raises(ConfigError, match=f"{key} is -1, expected"):
                check_values(nested(key, -1), keys(name))


@pytest.mark.parametrize("name", list_algorithms())
def test_the_defaults_have_a_description_and_are_accepted(name: str) -> None:
    own = defaults(name)
    check_values(own, keys(name))
    assert [path for path in leaves(own) if not keys(name)[path].text.endswith(".")] == []


def test_a_built_algorithm_keeps_the_keys_of_its_base() -> None:
    made = build_algorithm("Mine", base=PPO, default_config={"algo": {"clip": 0.1}})
    key = keys_of(made.default_config())["algo.clip"]
    assert key == keys_of(PPO.default_config())["algo.clip"]
    assert key.text


def test_an_author_may_return_keys_or_plain_values(tmp_path: Any) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from session.config import Key\n"
        "from session.config.key import FROM_1\n"
        "from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner\n"
        "class MyLearner(DQNLearner):\n"
        "    @classmethod\n"
        "    def default_config(cls):\n"
        "        own = {'keyed': Key(3, 'Number of rounds.', within=FROM_1), 'plain': 3}\n"
        "        return DQNLearner.default_config() | {'extra': own}\n"
        "class Mine(DQN):\n"
        "    learner = MyLearner\n"
    )
    for setting, words in (
        ("extra.keyed=0", r"learner_config\.extra\.keyed is 0, expected 1 or more"),
        ("algo.huber_kappa=-1", r"learner_config\.algo\.huber_kappa is -1\.0, expected 0 or more"),
    ):
        words_of_user = ("env_config.env_name=toy:chain", f"learner_config.{setting}")
        with pytest.raises(ConfigError, match=words):
            resolve(read_experiment(None, words_of_user, algorithm=f"{path}:Mine"))
    plain = ("env_config.env_name=toy:chain", "learner_config.extra.plain=-3")
    config = resolve(read_experiment(None, plain, algorithm=f"{path}:Mine"))
    assert config.learner_config.extra == {"keyed": 3, "plain": -3}
