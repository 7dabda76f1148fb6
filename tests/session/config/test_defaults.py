"""The default configs: complete, documented, and of use as defaults."""

from __future__ import annotations

import pytest

from session import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG, Config, ConfigError
from session.config import defaults as defaults
from session.config.config import keys_of, missing
from session.config.merge import paths

USER = {"algorithm": "dqn", "env_config": {"env_name": "gym:CartPole-v1"}}


def test_a_user_gives_an_algorithm_and_an_environment() -> None:
    assert list(missing(defaults.BASE_CONFIG)) == ["algorithm", "env_config.env_name"]
    config = Config(USER).extend(defaults.BASE_CONFIG, strict=True)
    assert config.learner_config == BASE_LEARNER_CONFIG
    assert config.session_config == BASE_SESSION_CONFIG
    assert config.env_config == {**BASE_ENV_CONFIG, "env_name": "gym:CartPole-v1"}


def test_sections_of_the_original_are_there() -> None:
    assert set(BASE_LEARNER_CONFIG) >= {"model", "algo", "replay"}
    assert set(BASE_ENV_CONFIG) >= {"action_spec", "obs_spec"}
    assert set(BASE_SESSION_CONFIG) >= {
        "folder",
        "replay",
        "ps",
        "tensorplex",
        "loggerplex",
        "sender",
    }
    assert "update_schedule" in BASE_SESSION_CONFIG.tensorplex
    assert set(BASE_SESSION_CONFIG.sender) >= {"flush_iteration", "flush_time"}


def test_the_base_config_shares_nothing_with_its_parts() -> None:
    config = defaults.BASE_CONFIG.copy()
    config.learner_config.algo.gamma = 0.5
    assert BASE_LEARNER_CONFIG.algo.gamma == defaults.BASE_CONFIG.learner_config.algo.gamma == 0.99


@pytest.mark.parametrize("limit", [0, None, -1, 200, 30000.0])
def test_every_way_to_write_a_horizon_is_accepted(limit: float | None) -> None:
    user = {"algorithm": "x", "env_config": {"env_name": "y", "limit_episode_length": limit}}
    config = Config(user).extend(defaults.BASE_CONFIG, strict=True)
    assert config.env_config.limit_episode_length == limit


def test_every_setting_and_section_has_a_description() -> None:
    keys = keys_of(defaults.BASE_CONFIG)
    assert set(keys) == set(paths(defaults.BASE_CONFIG))
    assert [path for path, key in keys.items() if not key.text.endswith(".")] == []


@pytest.mark.parametrize(
    ("section", "key", "value", "remedy"),
    [
        (
            "launcher",
            "on_sigterm",
            "resume",
            "remove it: on SIGTERM the learner saves and is started again, SIGINT ends the run",
        ),
        (
            "loggerplex",
            "overwrite",
            False,
            "remove it: a run appends to its log files, and a new run has a folder of its own",
        ),
    ],
)
def test_a_key_that_was_removed_is_refused_with_its_remedy(
    section: str, key: str, value: object, remedy: str
) -> None:
    old = {**USER, "session_config": {section: {key: value}}}
    with pytest.raises(ConfigError) as error:
        Config(old).extend(defaults.BASE_CONFIG, strict=True)
    assert str(error.value) == f"unknown key session_config.{section}.{key} = {value!r}; {remedy}"
