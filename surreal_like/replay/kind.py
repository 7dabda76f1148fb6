"""The class of replay that an experiment names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from session.errors import ConfigError
from surreal_like.replay.base import Replay


def load_replay_class(learner_config: Mapping[str, Any]) -> type[Replay]:
    """Returns the class named by ``learner_config.replay.type``; default :class:`UniformReplay`.

    Raises:
        ConfigError: there is no such class.
    """
    default = "surreal_like.replay.uniform_replay:UniformReplay"
    path = (learner_config.get("replay") or {}).get("type", default)
    module, _, name = str(path).partition(":")
    try:
        kind: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"learner_config.replay.type is '{path}', expected package.module:Class: {error}"
        ) from None
    if not isinstance(kind, type) or not issubclass(kind, Replay):
        raise ConfigError(
            f"learner_config.replay.type is '{path}', which is no class that extends "
            "surreal_like.Replay"
        )
    return kind
