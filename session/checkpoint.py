"""Checkpoints: whole or not at all, with a history, found again by the newest that is whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from session.errors import CheckpointError
from session.folder import write_atomically

_STATE = "state.json"


class Checkpoints:
    """Numbered checkpoints below one folder.

    A checkpoint is a folder of files with a ``state.json`` that also lists every file's size; it
    appears under its name only when it is complete.

    Args:
        folder: where they lie, one folder per number.
        keep_history: how many of the newest stay.
    """

    def __init__(self, folder: Path, *, keep_history: int = 2) -> None:
        self.folder = folder
        self._keep = max(1, keep_history)

    def save(self, number: int, state: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
        """Writes a checkpoint and removes those that are too old.

        Args:
            number: names it; larger is newer.
            state: plain data, for ``state.json``.
            write: writes the other files into the folder that it is given.

        Raises:
            CheckpointError: the disk refused; older checkpoints are whole as before.
        """
        path = self.folder / str(number)
        _save(path, state, write)
        for old in sorted(self._numbers())[: -self._keep]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)
        return path

    def newest_first(self) -> Iterator[Path]:
        """The folders of all complete checkpoints."""
        for number in sorted(self._numbers(), reverse=True):
            yield self.folder / str(number)

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return [int(path.name) for path in self.folder.iterdir() if path.name.isdigit()]


def save_one(path: Path, state: Mapping[str, Any], write: Callable[[Path], None]) -> None:
    """Writes one checkpoint under a fixed name, replacing the one that was there.

    Raises:
        CheckpointError: the disk refused; the old one is whole as before.
    """
    _save(path, state, write)


def read_state(path: Path) -> dict[str, Any]:
    """The state of a checkpoint whose files are all there and whole.

    Raises:
        CheckpointError: names the file that is missing or cut short.
    """
    try:
        state: dict[str, Any] = json.loads((path / _STATE).read_text())
        sizes = state.pop("files")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"checkpoint {path / _STATE} cannot be read: {error}") from None
    for name, size in sizes.items():
        file = path / name
        found = file.stat().st_size if file.exists() else 0
        if found != size:
            raise CheckpointError(
                f"checkpoint file {file} has {found} bytes, it was saved with {size}; "
                "remove its folder to go on from the one before"
            )
    return state


def _save(path: Path, state: Mapping[str, Any], write: Callable[[Path], None]) -> None:
    beside = path.with_name(f".{path.name}.saving")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write(beside)
        sizes = {file.name: file.stat().st_size for file in sorted(beside.iterdir())}
        write_atomically(beside / _STATE, json.dumps({**state, "files": sizes}))
        for file in beside.iterdir():
            _flush(file)
        _replace(beside, path)
        _flush(path.parent)
    except (OSError, CheckpointError) as error:
        # On a full disk the part that was written is in the way of everybody.
        shutil.rmtree(beside, ignore_errors=True)
        raise CheckpointError(f"checkpoint {path} was not saved: {error}") from None


def _replace(new: Path, path: Path) -> None:
    """Puts a folder in place; a folder cannot replace a full one in one step."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
