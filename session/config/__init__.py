"""Describes an experiment: typed configs, placeholders, defaults, files."""

from session.config.config import Config as Config
from session.config.key import Key as Key
