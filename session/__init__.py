"""Processes, sockets, files and configuration; independent of learning algorithms."""

from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from session.config.string_enum import StringEnum
from session.errors import ConfigError

__all__ = [
    "BASE_ENV_CONFIG",
    "BASE_LEARNER_CONFIG",
    "BASE_SESSION_CONFIG",
    "Config",
    "ConfigError",
    "StringEnum",
]
