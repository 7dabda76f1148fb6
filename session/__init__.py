"""Processes, sockets, files and configuration; independent of learning algorithms."""

from session.config import Config
from session.default_configs import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from session.errors import ConfigError
from session.string_enum import StringEnum

__all__ = [
    "BASE_ENV_CONFIG",
    "BASE_LEARNER_CONFIG",
    "BASE_SESSION_CONFIG",
    "Config",
    "ConfigError",
    "StringEnum",
]
