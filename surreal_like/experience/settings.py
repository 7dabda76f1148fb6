"""Settings of how rows are cut into chunks and sent: ``session_config.sender``."""

from __future__ import annotations

from session.config import Config
from session.errors import ConfigError

# Fast environments fill a chunk much sooner.
_FLUSH_SECONDS = 5.0


def flush_seconds(settings: Config, overlap: int) -> float:
    """Returns the seconds for which the rows of a chunk may wait until it is full; 0: no limit.

    Args:
        settings: section ``session_config.sender``.
        overlap: 1 for whole unrolls, which are never sent before they are full.
    """
    otherwise = 0.0 if overlap else _FLUSH_SECONDS
    given: float | None = settings.flush_time
    return otherwise if given is None else given


def check_sender(
    settings: Config, num_envs: int, overlap: int, *, resets_in_step: bool = False
) -> None:
    """Raises ConfigError if the settings ``session_config.sender`` contradict each other.

    Args:
        settings: section ``session_config.sender``.
        num_envs: streams of the agent.
        overlap: 1 for whole unrolls, whose last row is also in the next chunk.
        resets_in_step: True if the environment resets within its step.
    """
    if settings.cut == "episodes" and resets_in_step:
        raise ConfigError(
            "session_config.sender.cut is episodes, but the environment resets within its "
            "step, so that a chunk has rows of two episodes: write steps"
        )
    if overlap and settings.flush_time:
        raise ConfigError(
            f"session_config.sender.flush_time is {settings.flush_time}, but this replay takes "
            "whole unrolls of flush_iteration steps only: set it to null"
        )
    if overlap and settings.cut != "steps":
        raise ConfigError(
            f"session_config.sender.cut is {settings.cut}, but this replay takes whole unrolls, "
            "in which episodes end anywhere: write steps"
        )
    if settings.flush_iteration < 1:
        raise ConfigError(
            f"session_config.sender.flush_iteration is {settings.flush_iteration}: "
            "expected 1 step or more"
        )
    if settings.cut == "episodes" and num_envs > 1:
        raise ConfigError(
            f"session_config.sender.cut is episodes, but there are {num_envs} streams, whose "
            "episodes end at different times: write steps, or env_config.num_envs: 1"
        )
