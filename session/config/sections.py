"""The sections of an experiment."""

from collections.abc import Mapping
from typing import Any

from session.config.config import Config, keys_of
from session.config.constraints import check_values

SECTIONS = ("learner_config", "env_config", "session_config")
# Entries of an experiment that are mappings, and those that are texts.
MAPPINGS = (*SECTIONS, "policies")
TEXTS = {"algorithm": "a name, such as dqn", "policies_plan": "a place, such as plan.py:function"}


def sections_of(config: Config) -> dict[str, Config]:
    """Returns the sections by name: the keywords with which agents, learners, replays are built."""
    return {name: config[name] for name in SECTIONS}


def complete_session(given: Mapping[str, Any]) -> Config:
    """Returns the session_config of a script, completed by the defaults.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or is out of its range.
    """
    # Only here: the defaults have the keys of all add-ons.
    from session.config.defaults import BASE_CONFIG, BASE_SESSION_CONFIG

    default = Config({"session_config": BASE_SESSION_CONFIG})
    completed = Config({"session_config": dict(given)}).extend(default, strict=True)
    check_values(completed, keys_of(BASE_CONFIG))
    return Config(completed["session_config"])
