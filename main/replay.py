"""A replay shard's process: ``python -P -m main.replay --name replay-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from session.config.sections import sections_of
from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.data.policy_names import PolicyId
from surreal_like.policies.config import policy_config
from surreal_like.replay.batch_server import ReplayService
from surreal_like.replay.replay import load_replay_class


def build(context: Context) -> Service:
    """Builds the replay server with the class that ``learner_config.replay.type`` names."""
    # A shard keeps the rows of one policy, and knows of no other.
    config = context.config = policy_config(context.config, PolicyId.of_shard(context.name).name)
    replay = load_replay_class(config.learner_config)(**sections_of(config))
    return ReplayService(context, replay)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("replay", build, argv, keeps_memory=True)


if __name__ == "__main__":
    raise SystemExit(main())
