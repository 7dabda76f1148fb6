"""Settings of worker processes: ``env_config.workers``."""

from __future__ import annotations

from session.config.key import FROM_0, Key

WORKERS = Key(
    0,
    "For process: worker processes of one agent, at most num_envs; 0: one per core, or two.",
    within=FROM_0,
)
