"""A replay shard's process: ``python -P -m main.replay --name replay-0 --folder RUN``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from session.context import Context
from session.errors import ConfigError
from session.process import run_service
from session.service import Service
from surreal_like.replay.server import ReplayService
from surreal_like.topology import make_topology


def build(context: Context) -> Service:
    """The replay that ``learner_config.replay.type`` names, served."""
    config = context.config
    path = config.learner_config.replay.type
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"learner_config.replay.type '{path}': {error}") from None
    replay = kind(
        learner_config=config.learner_config,
        env_config=config.env_config,
        session_config=config.session_config,
    )
    return ReplayService(context, replay)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("replay", build, make_topology, argv)


if __name__ == "__main__":
    raise SystemExit(main())
