"""Makes the recorder of a replay shard, and shares the limit of a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from session.process.context import Context
from surreal_like.data.policy_names import PolicyId
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

    return Recorder(context, replay, goes_on=goes_on, limit_bytes=share_limit(context))


def share_limit(context: Context) -> float:
    """Returns the most bytes of each journal: shards and learners have equal parts of the limit."""
    session: Any = context.config.session_config
    shards = context.topology.of_kind("replay")
    learners = {PolicyId.of_shard(each.name) for each in shards}
    parts = len(shards) + (len(learners) if session.flight.keep != "none" else 0)
    return float(session.record.gigabytes * 1e9 / max(1, parts))
