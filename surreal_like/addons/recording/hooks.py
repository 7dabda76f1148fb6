"""Functions of recordings that the core calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from session.config import Config
from session.process.component import Component
from session.process.context import Context
from surreal_like.policies.config import policy_configs
from surreal_like.replay.replay import Replay

if TYPE_CHECKING:
    from surreal_like.addons.recording.recorder import Recorder

_GIGA = 1e9


def make_recorder(context: Context, replay: Replay, *, goes_on: bool) -> Recorder | None:
    """Returns what writes down the chunks of a shard, or None if nothing is to be recorded."""
    record: Any = context.config.session_config.record
    if record.what == "none" or context.folder is None:
        return None
    # Not at the top: most shards record nothing.
    from surreal_like.addons.recording.recorder import Recorder

    shards = sum(1 for _ in context.topology.of_kind("replay")) or 1
    limit_bytes = record.gigabytes * _GIGA / shards
    return Recorder(context, replay, goes_on=goes_on, limit_bytes=limit_bytes)


def make_components(
    config: Config, shards: tuple[str, ...], shared: tuple[str, ...]
) -> Iterator[Component]:
    """Yields the senders of a recording, one for each replay shard of a policy.

    Args:
        config: resolved experiment.
        shards: ends of the replay shards.
        shared: ends to which every component connects.
    """
    if not config.session_config.dataset.path:
        return
    configs = policy_configs(config).values()
    parts = max(own.learner_config.replay.replay_shards for own in configs)
    for index in range(parts):
        yield Component(
            f"data-{index}",
            "data",
            "main.data",
            index,
            connects=(*shards, *shared),
            resumes=True,
        )
