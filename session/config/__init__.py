"""Describes an experiment: typed configs, placeholders, defaults, files."""

from session.config.config import Config as Config
