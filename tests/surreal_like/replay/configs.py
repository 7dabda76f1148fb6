"""Configs of a replay for tests."""

from __future__ import annotations

from typing import Any

from session.config import Config
from session.config.defaults import (
    BASE_ENV_CONFIG,
    BASE_LEARNER_CONFIG,
    BASE_SESSION_CONFIG,
)


def configs(
    *,
    algo: dict[str, Any] | None = None,
    session: dict[str, Any] | None = None,
    env: Any = None,
    **replay: Any,
) -> dict[str, Config]:
    """The three configs as keywords; ``replay`` is what differs in ``learner_config.replay``."""
    learner = Config({"replay": replay, "algo": algo or {}})
    return {
        "learner_config": learner.extend(BASE_LEARNER_CONFIG),
        "env_config": Config({"env_name": "toy", "num_envs": 2} | (env or {})).extend(
            BASE_ENV_CONFIG
        ),
        "session_config": Config({"agent": {"num": 1}} | (session or {})).extend(
            BASE_SESSION_CONFIG
        ),
    }
