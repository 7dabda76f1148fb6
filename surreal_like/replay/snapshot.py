"""Snapshot that a replay shard saves when it ends, and restores when it starts again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from session.checkpoint import Checkpoints
from session.errors import CheckpointError
from session.nest import Array
from session.process.context import Context, run_part
from surreal_like.replay.acks import AckTracker
from surreal_like.replay.base import Replay

# Replaces an array in the plain data; no key of a state begins like this.
_ARRAY = "$array"


class Snapshots:
    """The newest snapshot of one shard, below the run folder; whole or absent.

    Args:
        context: context of this process.
        replay: stores the rows.
        ledger: accounts of all chunks, so that a chunk whose ack was lost is not stored twice
            when it is sent again.

    Attributes:
        rows: number of restored rows.
    """

    def __init__(self, context: Context, replay: Replay, ledger: AckTracker) -> None:
        self._context = context
        self._replay = replay
        self._ledger = ledger
        self.rows = 0
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

    def save(self) -> None:
        """Saves everything that is kept; a disk error is only reported, as an event."""
        context, content = self._context, self._replay.state()
        if not self._checkpoints or not content:
            return
        arrays: list[Array] = []
        state = {
            **self._about,
            "ledger": self._ledger.state(),
            "replay": _take_arrays(content, arrays),
        }

        def write(folder: Path) -> None:
            for number, array in enumerate(arrays):
                np.save(folder / f"{number}.npy", array, allow_pickle=False)

        context.busy(60.0, "saving a snapshot")
        try:
            path = self._checkpoints.save(context.incarnation, state, write)
        except CheckpointError as error:
            context.event("snapshot_failed", str(error))
        else:
            context.event("snapshot", f"{self._rows()} rows in {path.name}")

    def restore(self) -> None:
        """Restores the newest snapshot that is whole and of the same kind of rows."""
        if self._checkpoints and self._checkpoints.restore(self._read) is not None:
            self.rows = self._rows()
            self._context.event("restored", f"{self.rows} rows")

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        if any(state.get(key) != self._about[key] for key in ("type", "spec_hash")):
            raise CheckpointError(f"snapshot {folder} is of another kind of rows")
        try:
            self._replay.restore(_put_arrays(state["replay"], folder))
            if state["part"] == self._about["part"]:
                self._ledger.restore(state["ledger"])
        except Exception:
            # The restore may have stopped half-way.
            self._replay.reset()
            self._replay.reseed(self._context.seed)
            self._ledger.restore(AckTracker().state())
            raise

    def _rows(self) -> int:
        return int(self._replay.statistics().get("size", 0))


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
