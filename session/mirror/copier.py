"""Copies a run folder to its mirror, one complete generation after another."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from session.checkpoint import ASIDE, STATE, unseal
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder
from session.mirror.storage import BLOCK_BYTES, Manifest, Storage, StoredFile, checksum

Version = tuple[int, int, int]


@dataclass(slots=True)
class OpenFile:
    """One file of the run folder, open: its content stays, also where it is replaced or removed.

    Args:
        name: path in the run folder.
        file: the opened file.

    Attributes:
        size: size when it was opened [bytes].
        version: numbers that change with the content.
    """

    name: str
    file: BinaryIO
    size: int = field(init=False)
    version: Version = field(init=False)

    def __post_init__(self) -> None:
        found = os.fstat(self.file.fileno())
        self.size = found.st_size
        self.version = found.st_ino, found.st_size, found.st_mtime_ns

    def read_blocks(self) -> Iterator[bytes]:
        """Yields the content in blocks, without what was appended since the file was opened."""
        left = self.size
        while left > 0 and (block := self.file.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block


def open_files(run: RunFolder) -> Iterator[OpenFile]:
    """Yields the files of one generation; each is closed when the next one is asked for.

    First come checkpoints, the newest first, each whole or not at all. Keys, logs, heartbeats and
    what was set aside are left out.

    Args:
        run: the run folder.
    """
    saved = sorted(_walk(run.checkpoints), key=_age)
    whole = [path.parent for path in saved if path.name == STATE]
    for path in whole:
        yield from _open_checkpoint(path, str(path.relative_to(run.path)))
    plain = [path for path in saved if path.parent not in whole]
    plain += [*_walk(run.path / "code"), *_walk(run.tensorboard)]
    # Last, because the counters of progress may be above those of a checkpoint, but not below.
    plain += [run.topology, run.config, run.progress, run.events, run.metrics, run.result]
    for path in plain:
        with ExitStack() as stack:
            if (file := _open(str(path), None, stack)) is not None:
                yield OpenFile(str(path.relative_to(run.path)), file)


def _walk(top: Path) -> Iterator[Path]:
    """Yields all files below a folder, but those that are being written or were set aside."""
    for path, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name != ASIDE and not name.startswith(".")]
        yield from (Path(path, name) for name in files if not name.startswith("."))


def _age(path: Path) -> float:
    with suppress(OSError):
        return -path.stat().st_mtime
    return 0.0


def _open_checkpoint(path: Path, name: str) -> Iterator[OpenFile]:
    """Yields the files of a checkpoint, which may be renamed or removed meanwhile."""
    with ExitStack() as stack:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            found = {each: _open(each, folder, stack) for each in sorted(os.listdir(folder))}
        except OSError:
            return
        files = {each: file for each, file in found.items() if file is not None}
        if STATE in files and _is_whole(files):
            for each, file in files.items():
                yield OpenFile(f"{name}/{each}", file)


def _is_whole(files: dict[str, BinaryIO]) -> bool:
    """Returns False for a checkpoint that is damaged, or of which a part was removed already."""
    try:
        listed = unseal(files[STATE].read(), STATE)["files"]
    except (CheckpointError, KeyError):
        return False
    files[STATE].seek(0)
    return files.keys() >= set(listed)


def _open(path: str, folder: int | None, stack: ExitStack) -> BinaryIO | None:
    """Opens a regular file, no link; None if there is none."""
    with suppress(OSError):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        file = stack.enter_context(os.fdopen(number, "rb"))
        return file if stat.S_ISREG(os.fstat(number).st_mode) else None
    return None


@dataclass(frozen=True, slots=True)
class Owner:
    """The mirror's process, among those that may write to one place.

    Args:
        run, part, incarnation: as in :class:`Manifest`.
    """

    run: str
    part: int
    incarnation: int


class Copier:
    """Makes the mirror of one run equal to its folder.

    Args:
        run: the run folder.
        storage: the mirror.
        owner: identity of this process.
        pace: called before each block is sent, with its size; it may wait.

    Attributes:
        sent_bytes: size of all blocks sent so far.
    """

    def __init__(
        self, run: RunFolder, storage: Storage, owner: Owner, pace: Callable[[int], object]
    ) -> None:
        self.sent_bytes = 0
        self._run = run
        self._storage = storage
        self._owner = owner
        self._pace = pace
        self._known: dict[str, tuple[Version, StoredFile]] = {}
        self._published: Manifest | None = None
        # Blocks that are there, complete.
        self._there: set[str] = set()
        self._listed = False

    def copy(self, now: float) -> None:
        """Copies one generation, if something has changed; removes blocks of earlier ones.

        Args:
            now: wall clock [s].

        Raises:
            WireError: the mirror does not answer, or refuses; the next call goes on.
            UsageError: another run has its mirror there, or a later part of this one.
        """
        before = self._look()
        files = {file.name: self._store(file) for file in open_files(self._run)}
        owner = self._owner
        manifest = Manifest(owner.run, owner.part, owner.incarnation, now, files)
        if before is None or before.files != files or before.incarnation != owner.incarnation:
            self._storage.publish(manifest)
            self._published = manifest
        self._known = {name: each for name, each in self._known.items() if name in files}
        self._tidy(manifest.blocks)

    def _look(self) -> Manifest | None:
        """Returns the manifest on the mirror, after a check that this process may replace it."""
        try:
            found = self._storage.read_manifest()
        except CheckpointError:
            # A reader could not use it, either.
            found = None
        owner = self._owner
        if found is not None and found.run != owner.run:
            raise UsageError(
                f"mirror {self._storage.url} is that of another run: choose another "
                "session_config.mirror, or another name for the run folder"
            )
        if found is not None and (found.part, found.incarnation) > (owner.part, owner.incarnation):
            raise UsageError(
                f"mirror {self._storage.url} belongs to a later start of this run: it goes on "
                "elsewhere"
            )
        if found is None or found != self._published:
            # At the first copy, and where the place was emptied or another process wrote to it.
            # Only blocks of a manifest count: not every file system stores one at once.
            self._there, self._known = set() if found is None else found.blocks, {}
            self._listed = False
        return found

    def _store(self, file: OpenFile) -> StoredFile:
        """Sends the blocks of a file that are not there yet."""
        known = self._known.get(file.name)
        if known is not None and known[0] == file.version:
            return known[1]
        whole, blocks, size = hashlib.blake2b(digest_size=16), [], 0
        for block in file.read_blocks():
            whole.update(block)
            size += len(block)
            name = checksum(block)
            if name not in self._there:
                self._pace(len(block))
                self._storage.put(name, block)
                self._there.add(name)
                self.sent_bytes += len(block)
            blocks.append(name)
        stored = StoredFile(size, whole.hexdigest(), tuple(blocks))
        self._known[file.name] = file.version, stored
        return stored

    def _tidy(self, used: set[str]) -> None:
        """Removes blocks that the present generation does not use."""
        if not self._listed:
            # Once: an earlier process may have been killed before its manifest.
            self._there |= self._storage.list_blocks()
        self._storage.remove(sorted(self._there - used))
        self._there &= used
        self._listed = True
