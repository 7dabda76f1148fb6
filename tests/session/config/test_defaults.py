"""The default configs: complete, documented, and of use as defaults."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from session import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG, Config, ConfigError
from session.config import defaults as defaults
from session.config.config import missing
from session.config.merge import leaves

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


def test_every_key_has_a_comment_above_it() -> None:
    source = Path(defaults.__file__).read_text()
    lines = source.splitlines()
    tables = [
        node.value.args[0]
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args
    ][:3]
    assert len(tables) == 3
    keys = [
        key
        for table in tables
        for node in ast.walk(table)
        if isinstance(node, ast.Dict)
        for key in node.keys
    ]
    assert len(keys) > 80
    bare = [lines[key.lineno - 1] for key in keys if key and "# " not in lines[key.lineno - 2]]
    assert bare == []


def test_choices_hold_the_defaults() -> None:
    known = leaves(defaults.BASE_CONFIG)
    assert set(defaults.CHOICES) <= set(known)
    defaults.check_choices(defaults.BASE_CONFIG)
    defaults.check_choices(Config(USER))


def test_each_entry_of_a_list_is_one_of_the_choices() -> None:
    mode = {"mode": ["eval_stochastic", "eval_greedy"]}
    with pytest.raises(ConfigError, match=r"evaluator\.mode is 'eval_greedy', expected one of"):
        defaults.check_choices(Config({"session_config": {"evaluator": mode}}))


def test_a_value_outside_its_choices_is_refused() -> None:
    config = Config({"env_config": {"vector": "syncc"}})
    with pytest.raises(ConfigError) as caught:
        defaults.check_choices(config)
    assert str(caught.value) == (
        "env_config.vector is 'syncc', expected one of native, sync, process; did you mean sync?"
    )


def test_a_key_that_was_removed_is_refused_with_its_replacement() -> None:
    old = {**USER, "session_config": {"launcher": {"on_sigterm": "resume"}}}
    with pytest.raises(ConfigError) as error:
        Config(old).extend(defaults.BASE_CONFIG, strict=True)
    assert str(error.value) == (
        "unknown key session_config.launcher.on_sigterm = 'resume'; remove it: on SIGTERM the "
        "learner saves and is started again, SIGINT ends the run"
    )
