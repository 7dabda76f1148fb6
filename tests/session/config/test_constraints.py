"""Numbers have a least and a largest value, and what may be None has a kind all the same."""

from __future__ import annotations

from math import inf

import pytest

from session.config import Config
from session.config.constraints import OPTIONAL, RANGES, check_ranges, in_words, range_of
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.errors import ConfigError


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
    sections = {key.rpartition(".")[0] for key in known} | {key.partition(".")[0] for key in known}
    assert set(OPTIONAL) <= set(known)
    assert set(RANGES) <= set(known) | sections
    assert all(known[key] is None for key in OPTIONAL)


def test_every_setting_without_a_kind_has_one_here() -> None:
    known = leaves(BASE_CONFIG.to_dict())
    # The environment checks this one, with the words for what it takes.
    other = {"env_config.limit_episode_length"}
    assert {key for key, value in known.items() if value is None} - other == set(OPTIONAL)


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


def test_a_range_is_that_of_the_nearest_section() -> None:
    assert range_of("session_config.learner.threads") == (1, inf)
    assert range_of("session_config.learner.report_seconds") == (0, inf)
    assert range_of("learner_config.algo.learning_rate") == (-inf, inf)
    assert range_of("nothing") == (-inf, inf)


def test_ranges_in_words() -> None:
    assert in_words((1, inf)) == "1 or more"
    assert in_words((0, 1)) == "0 to 1"
    assert in_words((-inf, inf)) == ""
