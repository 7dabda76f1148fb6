"""Stores batches that led to bad updates, and counts bad updates in a row."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from session.errors import RunError, describe
from session.folder import write_atomically
from surreal_like.replay.client import Sampled

# Limits of updates in a row: that raised another exception, and that were bad.
RAISED_LIMIT, BAD_LIMIT = 3, 10
_MOST = 10
_MOST_BYTES = 1 << 26


class NotFinite(RunError):
    """The loss or the gradient of an update was not finite, so nothing was changed."""


class Quarantine:
    """Stores the first batches that ``learn`` failed on.

    An update is bad if ``learn`` raised an exception, or reported that it skipped the batch. A
    batch is written to ``<folder>/<number>.npz`` (its columns, up to 64 MiB) and ``<number>.json``
    (the error, the source of its rows, and the senders from which that shard has rows); at most ten
    per run.

    Args:
        folder: quarantine folder of the run; created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
        self._first: Exception | None = None
        self._bad = self._raised = 0

    def clear(self) -> None:
        """Resets the counters after a good update."""
        self._first = None
        self._bad = self._raised = 0

    @property
    def in_a_row(self) -> int:
        """Number of bad updates since the last good one."""
        return self._bad

    def add(
        self,
        sampled: Sampled | None,
        error: Exception,
        iteration: int,
        counts: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> Path | None:
        """Counts a bad update and stores its batch; returns the path, None if it was not stored.

        Of non-finite updates in a row only the first is stored.

        Args:
            sampled: the batch; None: there is none.
            error: error of the update.
            iteration: iteration of the learner.
            counts: counts of each replay shard, as :meth:`ReplayClient.counts` returns them.
        """
        repeated = bool(self._bad) and isinstance(error, NotFinite)
        self._first = self._first or error
        self._bad += 1
        self._raised += not isinstance(error, NotFinite)
        if repeated or sampled is None or self._kept >= _MOST:
            return None
        self._kept += 1
        return self._keep(sampled, error, iteration, counts)

    def end(self) -> Exception | None:
        """Returns the first error of the row if the row has reached its limit."""
        over = self._raised >= RAISED_LIMIT or self._bad >= BAD_LIMIT
        return self._first if over else None

    def _keep(
        self,
        sampled: Sampled,
        error: Exception,
        iteration: int,
        counts: Mapping[str, Mapping[str, Any]],
    ) -> Path | None:
        columns, replay = sampled.columns, f"replay-{sampled.shard}/{sampled.incarnation}"
        path = self._folder / f"{self._kept}.json"
        record: dict[str, Any] = {
            "error": describe(error),
            "traceback": "".join(traceback.format_exception(error)),
            "iteration": iteration,
            "replay": replay,
            "senders": {
                name: {"inserted": rows["inserted"], "dropped": rows["dropped"]}
                for name, rows in counts.get(replay, {}).get("senders", {}).items()
            },
            "columns": {name: f"{a.dtype} {list(a.shape)}" for name, a in columns.items()},
        }
        if "version" in columns:
            versions = columns["version"]
            record["versions"] = [int(versions.min()), int(versions.max())]
        try:
            self._folder.mkdir(exist_ok=True)
            if sum(each.nbytes for each in columns.values()) <= _MOST_BYTES:
                np.savez(path.with_suffix(".npz"), allow_pickle=False, **columns)
            write_atomically(path, json.dumps(record, indent=2) + "\n")
        except OSError:
            # A full disk must not end a run; the event still has the error.
            return None
        return path
