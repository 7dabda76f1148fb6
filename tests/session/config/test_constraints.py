"""Numbers have a least and a largest value, and what may be None has a kind all the same."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from session.config import Config
from session.config.constraints import OPTIONAL, RANGES, check_ranges, in_words, range_of
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.errors import ConfigError
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.registry import find_algorithm


def changed(key: str, value: object) -> Config:
    config = BASE_CONFIG.copy()
    section, _, name = key.rpartition(".")
    place = config
    for part in section.split("."):
        place = place[part]
    place[name] = value
    return config


def test_the_defaults_are_in_range() -> None:
    check_ranges(BASE_CONFIG.copy())


def test_every_key_of_the_tables_is_a_setting() -> None:
    known = leaves(BASE_CONFIG.to_dict())
    for name in list_algorithms():
        defaults = find_algorithm(name).default_config().to_dict()
        known = leaves({"learner_config": defaults}) | known
    sections = {key.rpartition(".")[0] for key in known} | {key.partition(".")[0] for key in known}
    assert set(OPTIONAL) <= set(known)
    assert set(RANGES) <= set(known) | sections


def test_every_setting_without_a_kind_has_one_here() -> None:
    known = leaves(BASE_CONFIG.to_dict())
    # The environment checks this one, with the words for what it takes.
    other = {"env_config.limit_episode_length"}
    assert {key for key, value in known.items() if value is None} - other <= set(OPTIONAL)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("session_config.seed", -1, "session_config.seed is -1, expected 0 or more"),
        ("learner_config.replay.batch_size", 0, "expected 1 or more"),
        ("learner_config.algo.gamma", 1.5, "expected 0 to 1"),
        ("learner_config.algo.gamma", float("nan"), "expected 0 to 1"),
        ("session_config.stop.env_steps", "many", "'many', expected a number, or null"),
        ("session_config.stop.env_steps", -5, "is -5, expected 1 or more"),
        ("session_config.stop.metric", 3, "expected a text, or null"),
        ("session_config.tensorplex.prometheus_port", 70_000, "expected 0 to 65535"),
        ("session_config.heartbeat.timeout", -1.0, "expected 0 or more"),
    ],
)
def test_what_is_outside_is_refused_by_its_whole_name(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_ranges(changed(key, value))
    assert key in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session_config.stop.eval_return", -200),
        ("session_config.stop.above", -1.5),
        ("learner_config.algo.gamma", 0),
        ("learner_config.algo.gamma", 1),
        ("session_config.folder", "runs/x"),
        ("session_config.tensorplex.prometheus_port", 65_535),
    ],
)
def test_what_is_at_the_edge_is_taken(key: str, value: object) -> None:
    check_ranges(changed(key, value))


@pytest.mark.parametrize("name", list_algorithms())
def test_no_number_of_an_algorithm_is_infinite_or_too_large(name: str) -> None:
    config = find_algorithm(name).default_config()
    for key, value in leaves({"learner_config": config.to_dict()}).items():
        if isinstance(value, bool | str) or value in (None, {}):
            continue
        wrong: list[Any] = [inf, -inf, nan, 10**30, -(10**30)]
        for each in [[4, each] for each in wrong] if isinstance(value, list) else wrong:
            with pytest.raises(ConfigError, match=f"{key} is .*, expected"):
                check_ranges(nested(key, each))


def nested(key: str, value: object) -> Config:
    for part in reversed(key.split(".")):
        value = {part: value}
    return Config(value)


# Their own ranges are in the code of an algorithm, as words about what the number does.
MEANT_BELOW_0 = {"reward_shift", "v_min", "v_max", "log_std", "target_entropy"}
CHECKED_BY_THE_ALGORITHM = {
    *("clip", "clip_c", "clip_rho", "clip_pg_rho", "value_clip", "value_weight", "gae_lambda"),
    *("vtrace_lambda", "huber_kappa", "kappa", "atoms", "quantiles", "rescale", "period", "tau"),
    *("policy_delay", "target_noise", "target_noise_clip", "sigma", "last_sigma", "theta", "high"),
    *("low", "kl", "coefficient", "stop", "target", "num_sgd_iter", "minibatches", "weight"),
    *("history", "noisy"),
}


@pytest.mark.parametrize("name", list_algorithms())
def test_no_number_of_an_algorithm_below_0_is_taken_without_a_meaning(name: str) -> None:
    algorithm = find_algorithm(name)
    defaults = algorithm.default_config()
    for key, value in leaves({"learner_config": defaults.to_dict()}).items():
        last = key.rpartition(".")[2]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or last in MEANT_BELOW_0 | CHECKED_BY_THE_ALGORITHM - {"start"}:
            continue
        if key.endswith("temperature.start"):
            continue
        with pytest.raises(ConfigError, match=f"{key} is -1"):
            check_ranges(nested(key, -1))


def test_a_range_is_that_of_the_nearest_section() -> None:
    assert range_of("session_config.learner.threads") == (1, inf)
    assert range_of("session_config.learner.report_seconds") == (0, inf)
    assert range_of("learner_config.algo.learning_rate.start") == (0, inf)
    assert range_of("learner_config.algo.reward_shift") == (-inf, inf)
    assert range_of("nothing") == (-inf, inf)


def test_ranges_in_words() -> None:
    assert in_words((1, inf)) == "1 or more"
    assert in_words((0, 1)) == "0 to 1"
    assert in_words((-inf, inf)) == ""
