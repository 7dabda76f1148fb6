"""Numbers of a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from session import nest
from session.nest import Array
from surreal_like.addons.recording.reader import Recording, Shard
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.experience.chunk import Chunk

# Least, quartiles and most.
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def summarize(recording: Recording) -> dict[str, Any]:
    """Reads a whole recording, and returns its numbers.

    Returns:
        ``run`` and ``specs`` as the recording has them; ``rows``, ``steps`` (rows are one more for
        each episode), ``bytes``, ``shards`` (name -> rows), ``senders`` (name -> rows),
        ``episodes``, ``ends`` (``terminated``, ``truncated``, ``cut`` -> episodes), ``late`` (those
        whose beginning is missing), ``mean_return`` of complete episodes (None without one), their
        ``lengths`` and ``returns`` (least, quartiles and most; empty without one), ``ranges``
        (column -> least and most of its numbers, over all axes), ``outside`` (column -> rows in
        which it is beyond its bounds, if there are any), ``versions`` (least and most),
        ``damages``.
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

    spec = nest.flatten(parse_obs_spec(recording.specs["obs_spec"]), "obs")
    spec["action"] = parse_action_spec(recording.specs["action_spec"]).array
    ends: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    steps = late = 0
    lengths: list[int] = []
    returns: list[float] = []
    for episode in recording.episodes(look):
        ends[episode.end] += 1
        steps += len(episode)
        late += not episode.begun
        columns = nest.flatten(episode.observations, "obs") | {"action": episode.actions}
        for name, column in columns.items():
            widen(name, column)
            outside[name] += _count_outside(spec[name], column)
        widen("reward", episode.rewards)
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
        "mean_return": float(np.mean(returns)) if returns else None,
        "lengths": np.quantile(lengths, _QUANTILES).tolist() if lengths else [],
        "returns": np.quantile(returns, _QUANTILES).tolist() if returns else [],
        "versions": list(map(int, ranges.pop("version", []))),
        "ranges": ranges,
        "outside": dict(+outside),
        "damages": [str(damage) for damage in recording.damages],
    }


def _count_outside(spec: ArraySpec, column: Array) -> int:
    """Returns the rows with a number beyond the bounds of a spec."""
    if spec.low is None and spec.high is None:
        return 0
    found = np.zeros(column.shape, np.bool_)
    if spec.low is not None:
        found |= column < spec.low
    if spec.high is not None:
        found |= column > spec.high
    return int(found.reshape(len(column), -1).any(1).sum())
