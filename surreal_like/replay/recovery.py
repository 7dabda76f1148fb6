"""Rows of a replay shard for its next start: memory that outlives it, and files of snapshots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from session import nest
from session.config import Config
from session.errors import CheckpointError, describe
from session.nest import Array
from session.newest_checkpoint import Checkpoints
from session.process.context import BUSY_SECONDS, Context, run_part
from surreal_like.data.spec import parse_obs_spec
from surreal_like.errors import DataError
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.kept_memory import KeptMemory, is_slower
from surreal_like.replay.replay import Replay

# Replaces an array in the plain data; no key of a state begins like this.
_ARRAY = "$array"
_ENDS = "if this process is killed, its rows are lost"
_SLOWER = (
    "this kernel has no huge pages for shared memory, so that sampling of large observations would "
    f"be slower there; {_ENDS}; session_config.replay.keep process keeps them"
)


class ShardRecovery:
    """The rows and accounts of one shard for its next start.

    They lie in memory that its launcher holds, as ``session_config.replay.keep`` says: then a shard
    that is killed goes on with every row that it has acked. With
    ``session_config.replay.snapshot`` they are also saved as files below the run folder.

    Args:
        context: context of this process.
        replay: stores the rows.
        ledger: accounts of all chunks, so that a chunk whose ack was lost is not stored twice
            when it is sent again.

    Attributes:
        rows: number of restored rows.
        goes_on: whether they are all rows of the process before, from memory.
        inserted: number of rows that were inserted before, as far as this one goes on.
        before: key of the shard that saved the restored rows -> its numbers of that time.
    """

    def __init__(self, context: Context, replay: Replay, ledger: AckTracker) -> None:
        self._context = context
        self._replay = replay
        self._ledger = ledger
        self.rows = self.inserted = 0
        self.goes_on = False
        self.before: Mapping[str, Any] = {}
        folder = context.folder if context.config.session_config.replay.snapshot else None
        self._checkpoints = folder and Checkpoints(
            folder.checkpoints / context.name,
            keep_history=1,
            note=lambda text: context.event("snapshot_bad", text),
        )
        self._about = {
            "type": context.config.learner_config.replay.type,
            "spec_hash": context.spec_hash,
            "part": run_part(context.config),
        }
        # Name -> what it sends in each part of the run.
        self._sends = {each.name: each.sends for each in context.topology if each.sends}
        self._kept = self._open_memory()

    def save(self, numbers: Mapping[str, Any]) -> None:
        """Saves everything that is kept; a disk error is only reported, as an event.

        Args:
            numbers: those of now for the accounts of the run, which may not get them otherwise.
        """
        context, content = self._context, self._replay.state()
        if not self._checkpoints or not content:
            return
        arrays: list[Array] = []
        state = {
            **self._about,
            "ledger": self._ledger.state(),
            "sends": self._sends,
            "before": {f"{context.name}/{context.incarnation}": dict(numbers)},
            "replay": _take_arrays(content, arrays),
        }

        def write(folder: Path) -> None:
            for number, array in enumerate(arrays):
                np.save(folder / f"{number}.npy", array, allow_pickle=False)

        context.busy(BUSY_SECONDS, "saving a snapshot")
        try:
            path = self._checkpoints.save(context.incarnation, state, write)
        except CheckpointError as error:
            context.event("snapshot_failed", str(error))
        else:
            context.event("snapshot", f"{self._rows()} rows in {path.name}")

    def _open_memory(self) -> KeptMemory | None:
        context, replay = self._context, self._replay
        keep = context.config.session_config.replay.keep
        if keep == "none" or not replay.keeps or not context.component.memory:
            return None
        if keep == "auto" and is_slower(_largest_observation(context.config.env_config)):
            context.event("memory_not_kept", _SLOWER)
            return None
        try:
            memory = KeptMemory(context.component.memory, self._about)
        except OSError as error:
            context.event("memory_not_kept", f"{describe(error)}; {_ENDS}")
            return None
        replay.keep_in(memory.zeros)
        return memory

    def commit(self) -> None:
        """Makes the rows and accounts of now those with which the next process goes on."""
        if self._kept is not None:
            self._kept.commit({"ledger": self._ledger.pack(), "replay": self._replay.counts()})

    def restore(self) -> None:
        """Goes on with the rows in kept memory, or restores the newest snapshot that is whole."""
        if self._kept is not None and self._kept.committed is not None:
            self._adopt(self._kept.committed)
        elif self._checkpoints and self._checkpoints.restore(self._read) is not None:
            self.rows = self._rows()
            self._context.event("restored", f"{self.rows} rows")

    def _adopt(self, committed: Mapping[str, Any]) -> None:
        try:
            self._replay.adopt(committed["replay"])
        except DataError as error:
            self._give_up()
            self._context.event("snapshot_bad", f"memory: {error}; its rows are given up")
            return
        self._ledger.unpack(committed["ledger"])
        self.goes_on, self.rows = True, self._rows()
        self.inserted = self._ledger.totals()["inserted"]
        self._context.event("restored", f"{self.rows} rows, from memory")

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        if any(state.get(key) != self._about[key] for key in ("type", "spec_hash")):
            raise CheckpointError(f"snapshot {folder} is of another kind of rows")
        try:
            self._replay.restore(_put_arrays(state["replay"], folder))
            if state["part"] == self._about["part"]:
                self._ledger.restore(state["ledger"])
            else:
                self._replay.forget_senders()
                # Runs that began earlier have saved none.
                same = self._sends.items() & state.get("sends", {}).items()
                self._ledger.carry(state["ledger"], dict(same), self._about["part"])
        except Exception:
            self._give_up()
            raise
        # Runs that began earlier have saved none.
        self.before = state.get("before", {})

    def _give_up(self) -> None:
        """Begins anew with an empty replay, after a restore that may have stopped half-way."""
        self._replay.reset()
        self._replay.reseed(self._context.seed)
        if self._kept is not None:
            self._kept.clear()
            self._replay.keep_in(self._kept.zeros)
        self._ledger.restore(AckTracker().state())

    def _rows(self) -> int:
        return int(self._replay.statistics().get("size", 0))


def _largest_observation(env_config: Config) -> int:
    """Returns the bytes of the largest part of an observation; 0 if it is not known."""
    if not env_config.obs_spec:
        return 0
    parts = nest.flatten(parse_obs_spec(env_config.obs_spec), "obs").values()
    return max(int(part.dtype.itemsize * math.prod(part.dim)) for part in parts)


def _take_arrays(value: Any, arrays: list[Array]) -> Any:
    """Returns plain data: arrays move to the list, and their numbers take their place."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, Mapping):
        return {key: _take_arrays(entry, arrays) for key, entry in value.items()}
    if isinstance(value, list):
        return [_take_arrays(entry, arrays) for entry in value]
    return value


def _put_arrays(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_put_arrays(entry, folder) for entry in value]
    if not isinstance(value, Mapping):
        return value
    if _ARRAY in value:
        # Mapped, not read, so that each array is copied only once.
        path = folder / f"{int(value[_ARRAY])}.npy"
        return np.load(path, mmap_mode="r", allow_pickle=False)
    return {key: _put_arrays(entry, folder) for key, entry in value.items()}
