"""Numbers of a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from surreal_like.addons.recording.reader import Recording, Shard
from surreal_like.experience.chunk import Chunk

# Least, quartiles and most.
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def summarize(recording: Recording) -> dict[str, Any]:
    """Reads a whole recording, and returns its numbers.

    Returns:
        ``run`` and ``specs`` as the recording has them; ``rows``, ``steps`` (rows are one more for
        each episode), ``bytes``, ``shards`` (name -> rows), ``senders`` (name -> rows),
        ``episodes``, ``ends`` (``terminated``, ``truncated``, ``cut`` -> episodes), ``late`` (those
        whose beginning is missing), ``returns`` of complete episodes (least, quartiles and most;
        empty without one), ``versions`` (least and most), ``damages``.
    """
    rows: Counter[str] = Counter()
    senders: Counter[str] = Counter()
    versions: list[int] = []

    def look(shard: Shard, chunk: Chunk) -> None:
        rows[shard.name] += chunk.size
        senders[chunk.sender] += chunk.size
        versions.extend((int(chunk.columns["version"].min()), int(chunk.columns["version"].max())))

    ends: Counter[str] = Counter()
    steps = late = 0
    returns: list[float] = []
    for episode in recording.episodes(look):
        ends[episode.end] += 1
        steps += len(episode)
        late += not episode.begun
        if episode.complete:
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
        "returns": np.quantile(returns, _QUANTILES).tolist() if returns else [],
        "versions": [min(versions), max(versions)] if versions else [],
        "damages": [str(damage) for damage in recording.damages],
    }
