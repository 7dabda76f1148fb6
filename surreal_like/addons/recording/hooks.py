"""Makes the recorder of a replay shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session.process.context import Context
from surreal_like.replay.replay import Replay

if TYPE_CHECKING:
    from surreal_like.addons.recording.recorder import Recorder


def make_recorder(context: Context, replay: Replay, *, goes_on: bool) -> Recorder | None:
    """Returns what writes down the chunks of a shard, or None if nothing is to be recorded."""
    record: Any = context.config.session_config.record
    if record.what == "none" or context.folder is None:
        return None
    # Not at the top: most shards record nothing.
    from surreal_like.addons.recording.recorder import Recorder

    shards = sum(1 for _ in context.topology.of_kind("replay")) or 1
    limit_bytes = record.gigabytes * 1e9 / shards
    return Recorder(context, replay, goes_on=goes_on, limit_bytes=limit_bytes)
