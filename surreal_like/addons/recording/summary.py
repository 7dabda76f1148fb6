"""Numbers of a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from session import nest
from session.nest import Array
from surreal_like.addons.recording.reader import Recording, Shard
from surreal_like.data.spec import make_clip
from surreal_like.experience.chunk import Chunk

# Least, quartiles and most.
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def summarize(recording: Recording) -> dict[str, Any]:
    """Reads a whole recording, and returns its numbers.

    Returns:
        ``run`` and ``specs`` as the recording has them; ``rows``, ``steps`` (rows are one more for
        each episode), ``bytes``, ``shards`` (name -> rows), ``senders`` (name -> rows),
        ``episodes``, ``ends`` (``terminated``, ``truncated``, ``cut`` -> episodes), ``late`` (those
        whose beginning is missing), ``lengths`` and ``returns`` of complete episodes (least,
        quartiles and most; empty without one), ``ranges`` (column -> least and most of its numbers,
        over all axes), ``outside`` (steps with an action beyond its bounds), ``versions`` (least
        and most), ``damages``.
    """
    rows: Counter[str] = Counter()
    senders: Counter[str] = Counter()
    ranges: dict[str, list[float]] = {}

    def widen(name: str, column: Array) -> None:
        if column.size:
            least, most = float(column.min()), float(column.max())
            before = ranges.setdefault(name, [least, most])
            before[:] = min(least, before[0]), max(most, before[1])

    def look(shard: Shard, chunk: Chunk) -> None:
        rows[shard.name] += chunk.size
        senders[chunk.sender] += chunk.size
        widen("version", chunk.columns["version"])

    clip = make_clip({"action_spec": recording.specs["action_spec"], "clip_action": True})
    ends: Counter[str] = Counter()
    steps = late = outside = 0
    lengths: list[int] = []
    returns: list[float] = []
    for episode in recording.episodes(look):
        ends[episode.end] += 1
        steps += len(episode)
        late += not episode.begun
        for name, column in nest.flatten(episode.observations, "obs").items():
            widen(name, column)
        for name, column in nest.flatten(episode.actions, "action").items():
            widen(name, column)
        widen("reward", episode.rewards)
        beyond = np.asarray(clip(episode.actions) != episode.actions)
        outside += int(beyond.reshape(len(episode), -1).any(1).sum())
        if episode.complete:
            lengths.append(len(episode))
            returns.append(episode.total_reward)
    recording.check()
    return {
        "run": recording.run,
        "specs": recording.specs,
        "rows": sum(rows.values()),
        "steps": steps,
        "bytes": recording.size_bytes,
        "shards": dict(rows),
        "senders": dict(sorted(senders.items())),
        "episodes": sum(ends.values()),
        "ends": {end: ends[end] for end in ("terminated", "truncated", "cut")},
        "late": late,
        "lengths": np.quantile(lengths, _QUANTILES).tolist() if lengths else [],
        "returns": np.quantile(returns, _QUANTILES).tolist() if returns else [],
        "versions": list(map(int, ranges.pop("version", []))),
        "ranges": ranges,
        "outside": outside,
        "damages": [str(damage) for damage in recording.damages],
    }
