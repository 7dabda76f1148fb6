"""The sections of an experiment."""

from session.config.config import Config

SECTIONS = ("learner_config", "env_config", "session_config")


def sections_of(config: Config) -> dict[str, Config]:
    """Returns the sections by name: the keywords with which agents, learners, replays are built."""
    return {name: config[name] for name in SECTIONS}
