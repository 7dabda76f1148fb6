"""Files of one run that are copied to other places, in blocks under their checksums."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from session.atomic_file import write_atomically
from session.checkpoint import ASIDE, STATE, listed_files, unseal
from session.errors import CheckpointError
from session.folder import RunFolder
from session.json_file import open_file

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a generation.

    Args:
        bytes: size.
        blake2b: checksum.
        blocks: checksums of its blocks, in order.
    """

    bytes: int
    blake2b: str
    blocks: tuple[str, ...]

    @classmethod
    def load(cls, entry: Mapping[str, Any]) -> Self:
        """Reads an entry of JSON or of a message, of which the types are checked."""
        return cls(entry["bytes"], entry["blake2b"], tuple(entry["blocks"]))


def checksum(data: bytes) -> str:
    """Returns the checksum under which a block is stored."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


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
    version: tuple[int, int, int] = field(init=False)

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


def open_files(run: RunFolder, *, logs: bool = False) -> Iterator[OpenFile]:
    """Yields the files of one generation; each is closed when the next one is asked for.

    First come checkpoints, the newest first, each whole or not at all. Keys, heartbeats and what
    was set aside are left out.

    Args:
        run: the run folder.
        logs: True yields logs, too.
    """
    saved = sorted(_walk(run.checkpoints), key=_age)
    whole = [path.parent for path in saved if path.name == STATE]
    for path in whole:
        yield from _open_checkpoint(path, str(path.relative_to(run.path)))
    plain = [path for path in saved if path.parent not in whole]
    plain += [*_walk(run.path / "code"), *_walk(run.tensorboard)]
    plain += _walk(run.logs) if logs else ()
    # Last, because the counters of progress may be above those of a checkpoint, but not below.
    plain += [run.topology, run.config, run.progress, run.events, *run.list_metrics(), run.result]
    for path in plain:
        with ExitStack() as stack:
            if (file := _open(str(path), None, stack)) is not None:
                yield OpenFile(str(path.relative_to(run.path)), file)


class RunFiles:
    """The files of a run with their checksums; one that has not changed is not read again.

    Args:
        run: the run folder; it need not exist.
        logs: True includes logs.
    """

    def __init__(self, run: RunFolder, *, logs: bool = False) -> None:
        self._run, self._logs = run, logs
        self._known: dict[str, tuple[object, StoredFile]] = {}

    def find(
        self,
        moves: Callable[[str], bool] = lambda name: True,
        on_block: Callable[[str, bytes], object] = lambda name, block: None,
    ) -> dict[str, StoredFile]:
        """Returns the present files by their paths.

        Args:
            moves: returns False for the paths that are left out.
            on_block: called with the checksum and the content of each block that is read.
        """
        present, found = set(), dict[str, StoredFile]()
        for file in open_files(self._run, logs=self._logs):
            present.add(file.name)
            if moves(file.name):
                version, stored = self._known.get(file.name, (None, None))
                if stored is None or version != file.version:
                    stored = _store(file, on_block)
                    self._known[file.name] = file.version, stored
                found[file.name] = stored
        self._known = {name: each for name, each in self._known.items() if name in present}
        return found

    def read(self, block: str) -> bytes | None:
        """Returns a block of the files that were found; None if they have changed since."""
        for name, (_, stored) in self._known.items():
            if block in stored.blocks:
                with suppress(OSError), open_file(self._run.path / name) as file:
                    at = file.seek(stored.blocks.index(block) * BLOCK_BYTES)
                    data = file.read(min(stored.bytes - at, BLOCK_BYTES))
                    if checksum(data) == block:
                        return data
        return None


def _store(file: OpenFile, on_block: Callable[[str, bytes], object]) -> StoredFile:
    whole, blocks, size = hashlib.blake2b(digest_size=16), list[str](), 0
    for block in file.read_blocks():
        whole.update(block)
        size += len(block)
        blocks.append(checksum(block))
        on_block(blocks[-1], block)
    return StoredFile(size, whole.hexdigest(), tuple(blocks))


def write_file(path: Path, stored: StoredFile, blocks: Iterable[bytes], name: str) -> None:
    """Replaces a file, or leaves the old one.

    Args:
        path: the file; its folder is made.
        stored: size and checksum of the new content.
        blocks: the new content, in order.
        name: name of the file, for the error.

    Raises:
        CheckpointError: the content has another size or checksum.
    """

    def check() -> Iterator[bytes]:
        whole, size = hashlib.blake2b(digest_size=16), 0
        for block in blocks:
            whole.update(block)
            size += len(block)
            yield block
        if (size, whole.hexdigest()) != (stored.bytes, stored.blake2b):
            raise CheckpointError(f"{name} has not its checksum")

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, check())


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
        listed = listed_files(unseal(files[STATE].read(), STATE), STATE)
    except CheckpointError:
        return False
    files[STATE].seek(0)
    return files.keys() >= listed.keys()


def _open(path: str, folder: int | None, stack: ExitStack) -> BinaryIO | None:
    """Opens a regular file, no link; None if there is none."""
    with suppress(OSError):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        file = stack.enter_context(os.fdopen(number, "rb"))
        return file if stat.S_ISREG(os.fstat(number).st_mode) else None
    return None
