"""Public names, and the modules that define them."""

from session.config import Config as Config
from session.config.defaults import BASE_ENV_CONFIG as BASE_ENV_CONFIG
from session.config.defaults import BASE_LEARNER_CONFIG as BASE_LEARNER_CONFIG
from session.config.defaults import BASE_SESSION_CONFIG as BASE_SESSION_CONFIG
from session.config.string_enum import StringEnum as StringEnum
from session.errors import ConfigError as ConfigError
