"""Bad updates: stores their batches, finds the senders of the rows, and counts them."""

from __future__ import annotations

import json
import traceback
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session.atomic_file import write_atomically
from session.errors import RunError, describe
from surreal_like.data.batch import Sampled
from surreal_like.data.bounds import UNUSUAL
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId
from surreal_like.data.sender import Sender
from surreal_like.replay.storage import SENDER

# Limits of consecutive bad updates: of those that raised another exception, and of all. If the
# first one was not finite, the learner goes back to a checkpoint then, else the run fails.
RAISED_LIMIT, BAD_LIMIT = 3, 10
# A sender repeats if it stands in REPEATED of the NEWEST bad batches.
REPEATED, NEWEST = 3, 5
_MOST = 10
_MOST_BYTES = 1 << 26
_MOST_NAMES = 5

Columns = Mapping[str, npt.NDArray[Any]]
ShardCounts = Mapping[str, Mapping[str, Any]]


class NotFinite(RunError):
    """The loss or the gradient of an update was not finite, so nothing was changed."""


class BadUpdates(RunError):
    """There were too many consecutive bad updates, and the first one was not finite."""


class Quarantine:
    """Stores the first batches that ``learn`` failed on, and finds the senders of their rows.

    An update is bad if ``learn`` raised an exception, or reported that it skipped the batch. A
    batch is written to ``<folder>/<number>.npz`` (its columns, up to 64 MiB) and ``<number>.json``
    (the error, the source of its rows, their senders where these are known, and the senders from
    which that shard has rows); at most ten per run.

    Args:
        folder: quarantine folder of the run, or of a policy; created when needed.
        policy: name of the policy.

    Attributes:
        in_a_row: number of bad updates since the last good one.
        senders: rows in the newest bad batch by the names of their senders, see
            :func:`count_senders`.
    """

    def __init__(self, folder: Path, policy: str = DEFAULT_POLICY) -> None:
        self._folder, self._policy = folder, policy
        self._kept = len(list(folder.glob("*.json"))) if folder.is_dir() else 0
        self._first: Exception | None = None
        self.in_a_row = self._raised = 0
        self.senders: Mapping[str, int] = {}
        self._newest: deque[frozenset[str]] = deque(maxlen=NEWEST)
        # Senders of all bad updates since the last good one, and the file of the first.
        self._all: Counter[str] = Counter()
        self._file: Path | None = None

    def clear(self) -> None:
        """Resets the counters after a good update."""
        self._first = self._file = None
        self.in_a_row = self._raised = 0
        self._all.clear()

    def find_repeated(self) -> set[str]:
        """Returns the senders that stand in three of the last five bad batches."""
        counts = Counter(name for names in self._newest for name in names)
        return {name for name, times in counts.items() if times >= REPEATED}

    def add(
        self,
        sampled: Sampled | None,
        error: Exception,
        iteration: int,
        counts: ShardCounts = MappingProxyType({}),
    ) -> Path | None:
        """Counts a bad update and stores its batch; returns the path, None if it was not stored.

        Of consecutive non-finite updates only the first is stored.

        Args:
            sampled: the batch; None: there is none.
            error: error of the update.
            iteration: iteration of the learner.
            counts: counts of each replay shard, as :meth:`ReplayClient.counts` returns them.
        """
        repeated = bool(self.in_a_row) and isinstance(error, NotFinite)
        self._first = self._first or error
        self.in_a_row += 1
        self._raised += not isinstance(error, NotFinite)
        self.senders = {} if sampled is None else self._count_senders(sampled, counts)
        self._newest.append(frozenset(self.senders))
        self._all.update(self.senders)
        if repeated or sampled is None or self._kept >= _MOST:
            return None
        self._kept += 1
        path = self._keep(sampled, error, iteration, counts)
        self._file = self._file or path
        return path

    def end(self) -> Exception | None:
        """Returns the first error of the consecutive bad updates if they have reached a limit."""
        over = self._raised >= RAISED_LIMIT or self.in_a_row >= BAD_LIMIT
        return self._first if over else None

    def explain(self) -> str:
        """Describes consecutive bad updates: their error, senders, and the file of the first."""
        of = f"; rows of {words(self._all)}" if self._all else ""
        kept = f"; the first batch: {self._file}" if self._file is not None else ""
        return (
            f"{self.in_a_row} updates in a row had a loss or gradient that is not finite"
            f"{of}{kept}; lower the learning rate or look at the rewards"
        )

    def _shard(self, sampled: Sampled) -> str:
        return f"{PolicyId(self._policy).shard(sampled.shard)}/{sampled.incarnation}"

    def _count_senders(self, sampled: Sampled, counts: ShardCounts) -> dict[str, int]:
        senders = counts.get(self._shard(sampled), {}).get("senders", {})
        names = {rows["place"]: Sender.parse(key).name for key, rows in senders.items()}
        return count_senders(sampled.columns, names)

    def _keep(
        self, sampled: Sampled, error: Exception, iteration: int, counts: ShardCounts
    ) -> Path | None:
        columns, replay = sampled.columns, self._shard(sampled)
        path = self._folder / f"{self._kept}.json"
        record: dict[str, Any] = {
            "error": describe(error),
            "traceback": "".join(traceback.format_exception(error)),
            "iteration": iteration,
            "replay": replay,
            "rows_of": self.senders,
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
            self._folder.mkdir(parents=True, exist_ok=True)
            if sum(each.nbytes for each in columns.values()) <= _MOST_BYTES:
                # Without allow_pickle, which numpy 1.26 would save as a column.
                arrays: dict[str, Any] = {**columns}
                np.savez(path.with_suffix(".npz"), **arrays)
            write_atomically(path, json.dumps(record, indent=2) + "\n")
        except OSError:
            # A full disk must not end a run; the event still has the error.
            return None
        return path


def count_senders(columns: Columns, names: Mapping[int, str]) -> dict[str, int]:
    """Returns the number of rows of a bad batch by sender, the most first.

    If some rows have values that are not finite, or above 1e12, only these count: they explain the
    update, and the senders of the others have done nothing.

    Args:
        columns: columns of the batch; without senders, as where no guest can come, none is found.
        names: names of the senders by their places; rows of others are of ``unknown``.
    """
    senders = columns.get(SENDER)
    if senders is None:
        return {}
    large = _flag_large(columns, senders.ndim - 1, senders.shape[-1])
    chosen = senders[..., large] if large.any() else senders
    found: Counter[str] = Counter()
    for place, rows in zip(*np.unique(chosen, return_counts=True), strict=True):
        found[names.get(int(place), "unknown")] += int(rows)
    return dict(found.most_common())


def _flag_large(columns: Columns, axis: int, streams: int) -> npt.NDArray[np.bool_]:
    """Flags the streams (or rows) of a batch with a value that is not finite or above 1e12."""
    flags = np.zeros(streams, np.bool_)
    for column in columns.values():
        if column.dtype.kind == "f" and column.ndim > axis and column.shape[axis] == streams:
            others = tuple(each for each in range(column.ndim) if each != axis)
            flags |= ~(np.abs(column) <= UNUSUAL).all(axis=others)
    return flags


def words(senders: Mapping[str, int]) -> str:
    """Lists senders with their numbers of rows, at most five of them."""
    listed = [f"{name} ({rows})" for name, rows in list(senders.items())[:_MOST_NAMES]]
    more = len(senders) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")
