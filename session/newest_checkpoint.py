"""The newest checkpoint: a resumed run goes on from the newest intact one of its lineage."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from session.checkpoint import read_state, save_one, set_aside
from session.errors import CheckpointError

Note = Callable[[str], object]
Read = Callable[[Path, Mapping[str, Any]], None]


class Checkpoints:
    """Numbered checkpoints below one folder.

    A checkpoint is a folder of files with a ``state.json`` that also lists size and checksum of
    every file; it appears under its name only when it is complete. Numbers rise within a lineage:
    a checkpoint above the number that is restored or written belongs to another lineage and is
    set aside (see :func:`set_aside`). So the largest number is always the newest.

    Args:
        folder: holds one folder per number.
        keep_history: number of newest checkpoints to keep.
        note: called with one line of text for each checkpoint that was set aside.
    """

    def __init__(
        self, folder: Path, *, keep_history: int = 2, note: Note = lambda text: None
    ) -> None:
        self.folder = folder
        self._keep = max(1, keep_history)
        self._note = note
        self._newest: int | None = None

    def save(self, number: int, state: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
        """Writes a checkpoint and removes the oldest ones below it.

        Args:
            number: name of the checkpoint; within a lineage larger is newer.
            state: plain data, for ``state.json``; ``grew_from`` is added, the number of the
                checkpoint before it in its lineage.
            write: called with a folder; writes the other files into it.

        Raises:
            CheckpointError: a disk error; older checkpoints stay intact.
        """
        path = self.folder / str(number)
        save_one(path, {**state, "grew_from": self._newest}, write)
        self._newest = number
        self.go_back(number, f"above {number}, which was saved after it")
        for old in sorted(self._numbers())[: -self._keep]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)
        return path

    def restore(self, read: Read) -> dict[str, Any] | None:
        """Restores the newest intact checkpoint and sets aside the damaged ones.

        Args:
            read: called with folder and state of a checkpoint; any error marks it as damaged.

        Returns:
            The state of the restored checkpoint, None if there is none.
        """
        self._tidy()
        for path in self.newest_first():
            try:
                state = read_state(path)
                read(path, state)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - damage shows as any error
                self._note(f"{_words(error, path)}; {self._aside(path)}")
                continue
            self._newest = int(path.name)
            return state
        return None

    def go_back(self, number: int, why: str) -> None:
        """Sets aside all checkpoints above a number; each note contains ``why``."""
        for above in sorted(self._numbers(), reverse=True):
            if above > number:
                path = self.folder / str(above)
                self._note(f"checkpoint {path} is {why}; {self._aside(path)}")

    def keep_only(self, path: Path) -> None:
        """Removes all checkpoints but one."""
        for other in self.newest_first():
            if other != path:
                shutil.rmtree(other, ignore_errors=True)

    def newest_first(self) -> Iterator[Path]:
        """Yields the folders of all complete checkpoints, the newest first."""
        for number in sorted(self._numbers(), reverse=True):
            yield self.folder / str(number)

    def _aside(self, path: Path) -> str:
        return set_aside(path, keep=2 * self._keep)

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir())
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def _tidy(self) -> None:
        """Removes partial checkpoints of a killed process and completes its last replacement."""
        for path in self.folder.glob(".*.saving"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob("*-2"):
            replaced = path.with_name(path.name.removesuffix("-2"))
            if replaced.exists():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.rename(replaced)


def _words(error: Exception, path: Path) -> str:
    """Formats an error as one line that names the checkpoint."""
    if isinstance(error, CheckpointError):
        return " ".join(str(error).split())
    text = " ".join(str(error).split())
    return f"checkpoint {path}: {type(error).__name__}: {text}"


def begins_anew(updates: int) -> str:
    """Returns the message about a learner without a checkpoint.

    Args:
        updates: number of updates lost.
    """
    return f"no checkpoint yet: begins anew, {updates:,} updates repeated"
