"""Numbers have a range, some texts have choices, and what may be None has a kind all the same."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from session.config import Config
from session.config.config import keys_of
from session.config.constraints import check_values
from session.config.defaults import BASE_CONFIG
from session.config.key import (
    ABOVE_0,
    ANY_NUMBER,
    FROM_0,
    FROM_1,
    SHARE,
    SHARE_ABOVE_0,
    Key,
    range_of,
    section,
)
from session.config.merge import join, leaves
from session.errors import ConfigError
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.experiment.resolve import defaults

KEYS = keys_of(BASE_CONFIG)


def changed(key: str, value: object) -> Config:
    config = BASE_CONFIG.copy()
    section, _, name = key.rpartition(".")
    place = config
    for part in section.split("."):
        place = place[part]
    place[name] = value
    return config


def test_the_defaults_are_accepted() -> None:
    check_values(BASE_CONFIG.copy(), KEYS)


def test_every_setting_without_a_kind_has_one_in_its_key() -> None:
    # The environment checks this one, with the words for what it takes.
    other = {"env_config.limit_episode_length"}
    known = {key for key, value in leaves(BASE_CONFIG.to_dict()).items() if value is None}
    assert {key for key in known if not KEYS[key].optional} == other


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
        ("session_config.heartbeat.timeout", -1.0, "expected"),
    ],
)
def test_what_is_outside_is_refused_by_its_whole_name(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_values(changed(key, value), KEYS)
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
    check_values(changed(key, value), KEYS)


@pytest.mark.parametrize("name", list_algorithms())
def test_no_number_of_an_algorithm_is_infinite_or_too_large(name: str) -> None:
    config = find_algorithm(name).default_config()
    for key, value in leaves({"learner_config": config.to_dict()}).items():
        if isinstance(value, bool | str) or value in (None, {}):
            continue
        wrong: list[Any] = [inf, -inf, nan, 10**30, -(10**30)]
        for each in [[4, each] for each in wrong] if isinstance(value, list) else wrong:
            with pytest.raises(ConfigError, match=f"{key} is .*, expected"):
                check_values(nested(key, each), KEYS)


@pytest.mark.parametrize("name", list_algorithms())
def test_a_value_that_makes_a_setting_idle_is_one_that_its_key_takes(name: str) -> None:
    keys = keys_of(defaults(name).extend(BASE_CONFIG, abstract=True))
    for path, key in keys.items():
        if key.idle is not None:
            beside = join(path.rpartition(".")[0], key.idle.key)
            other = beside if beside in keys else key.idle.key
            assert other in keys, path
            for value in key.idle.values:
                check_values(nested(other, value), keys)


def nested(key: str, value: object) -> Config:
    for part in reversed(key.split(".")):
        value = {part: value}
    return Config(value)


def test_a_range_is_that_of_the_nearest_section() -> None:
    assert range_of("session_config.learner.threads", KEYS) == FROM_1
    assert range_of("session_config.learner.report_seconds", KEYS) == FROM_0
    assert range_of("session_config.stop.eval_return", KEYS) == ANY_NUMBER
    assert range_of("nothing", KEYS) == ANY_NUMBER


def test_a_list_has_a_range_of_its_own() -> None:
    config = Config(section("S.", {"a": Key([1], "A.", within=FROM_1), "b": [0]}).default)
    check_values(config, keys_of(config) | {"": Key({}, within=FROM_1)})
    config.a = [2, 1, 0.5]
    with pytest.raises(ConfigError, match=r"^a\[2\] is 0\.5, expected 1 or more$"):
        check_values(config, keys_of(config))


def test_each_entry_of_a_list_is_one_of_the_choices() -> None:
    config = changed("session_config.evaluator.mode", ["eval_stochastic", "eval_greedy"])
    with pytest.raises(ConfigError, match=r"evaluator\.mode is 'eval_greedy', expected one of"):
        check_values(config, KEYS)


def test_a_value_outside_its_choices_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        check_values(changed("env_config.seats", "shufled"), KEYS)
    assert str(caught.value) == (
        "env_config.seats is 'shufled', expected one of shuffled, fixed; did you mean shuffled?"
    )


@pytest.mark.parametrize(
    ("limits", "words", "inside", "outside"),
    [
        (FROM_1, "1 or more", (1, 10**9), (0, 0.5)),
        (SHARE, "0 to 1", (0, 1, 0.5), (-0.1, 1.1)),
        (ABOVE_0, "more than 0", (1e-9,), (0, -1)),
        (SHARE_ABOVE_0, "above 0, at most 1", (0.1, 1), (0, 1.1)),
        (ANY_NUMBER, "", (-(10**9), 0), (nan, "text", None)),
    ],
)
def test_ranges(limits: Any, words: str, inside: tuple[Any], outside: tuple[Any]) -> None:
    assert f"{limits}" == words
    assert all(each in limits for each in inside)
    assert not any(each in limits for each in outside)
